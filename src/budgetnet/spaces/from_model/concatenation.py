"""A layer on a concatenation of channels becomes a sum of layers, one for each part."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.spaces.from_model.lift import Lifted, arguments
from budgetnet.spaces.from_model.trace import operation

aten = torch.ops.aten


def split_concatenations(lifted: Lifted) -> None:
    """Splits every convolution and linear layer that alone reads a concatenation of channels."""
    for node in list(lifted.graph.nodes):
        if node.op == "call_module":
            _split_concatenation(lifted, node)
    lifted.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))


def _split_concatenation(lifted: Lifted, node: fx.Node) -> None:
    """A convolution or linear layer on a concatenation of channels is the sum of a layer for each part."""
    layer, joined = lifted.layer(node), node.args[0]
    if (
        not isinstance(joined, fx.Node)
        or operation(joined) not in ("cat", "concat", "concatenate")
        or len(joined.users) > 1
    ):
        return
    if sum(other.target == node.target for other in lifted.graph.nodes if other.op == "call_module") > 1:
        return
    linear = isinstance(layer, nn.Linear)
    if not linear and not (isinstance(layer, nn.modules.conv._ConvNd) and not layer.transposed and layer.groups == 1):
        return
    assert isinstance(layer, nn.Linear | nn.modules.conv._ConvNd)
    given = arguments(joined)
    value = joined.meta["val"]
    if given["dim"] % value.dim() != (value.dim() - 1 if linear else 1):
        return
    sizes = [part.meta["val"].shape[given["dim"]] for part in given["tensors"]]
    del lifted.layers[str(node.target)]
    weights = torch.split_with_sizes(layer.weight.detach(), sizes, 1)
    total: fx.Node | None = None
    with lifted.graph.inserting_before(node):
        for i, (part, weight) in enumerate(zip(given["tensors"], weights, strict=True)):
            target = lifted.add(f"{node.target}.part{i}", _part(layer, weight, bias=i == 0))
            term = lifted.graph.call_module(target, (part,))
            term.meta = dict(node.meta)
            if total is not None:
                term, total = total, lifted.graph.call_function(aten.add.Tensor, (total, term))
                total.meta = {**node.meta, "concatenation": True}
            else:
                total = term
    assert total is not None
    node.replace_all_uses_with(total)
    lifted.graph.erase_node(node)


def _part(layer: nn.Linear | nn.modules.conv._ConvNd, weight: Tensor, *, bias: bool) -> nn.Module:
    """The layer for some of the input channels; the first has the bias."""
    new: Any = type(layer).__new__(type(layer))
    new.__dict__ = dict(layer.__dict__)
    kept = layer.bias if bias else None
    new._parameters = {"weight": nn.Parameter(weight.clone(), layer.weight.requires_grad), "bias": kept}
    if isinstance(layer, nn.Linear):
        new.in_features = weight.shape[1]
    else:
        new.in_channels = weight.shape[1]
    return new  # type: ignore[no-any-return]
