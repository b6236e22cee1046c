"""Batch norm folded into the convolution before it: the same function in eval mode, with fewer operations.

A batch norm after a linear layer stays: whether it scales the layer's features, or the tokens of a sequence, depends on
the number of dimensions, which a network alone does not tell.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

M = TypeVar("M", bound=nn.Module)

_NORMS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}


def fold(module: M) -> M:
    """A copy in eval mode; its graph and `nn.Sequential`s hold no batch norm after a convolution."""
    folded = copy.deepcopy(module).eval()
    for parent in list(folded.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Sequential:
                setattr(parent, name, nn.Sequential(*_fused(child)))
    for graph_module in [child for child in folded.modules() if isinstance(child, fx.GraphModule)]:
        _fold_graph(graph_module)
    return folded


def _fold_graph(module: fx.GraphModule) -> None:
    """Folds a batch norm that alone reads a layer's output; layers that are called twice stay."""
    for before, node in folded_calls(module):
        layer, norm = (module.get_submodule(str(call.target)) for call in (before, node))
        module.set_submodule(str(before.target), _fuse(layer, norm))
        node.replace_all_uses_with(before)
        module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()


def folded_calls(module: fx.GraphModule) -> list[tuple[fx.Node, fx.Node]]:
    """The calls of a layer and of the batch norm after it that `fold` makes one of."""
    calls = [node for node in module.graph.nodes if node.op == "call_module"]
    times = Counter(node.target for node in calls)
    found = []
    for node in calls:
        before = node.args[0]
        if isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1:
            layer, norm = (module.get_submodule(str(call.target)) for call in (before, node))
            if _foldable(layer, norm) and times[before.target] == times[node.target] == 1:
                found.append((before, node))
    return found


def _fused(layers: Iterable[nn.Module]) -> list[nn.Module]:
    fused: list[nn.Module] = []
    for layer in layers:
        if fused and _foldable(fused[-1], layer):
            fused[-1] = _fuse(fused[-1], layer)
        else:
            fused.append(layer)
    return fused


def _foldable(layer: nn.Module, norm: nn.Module) -> bool:
    """A norm without running statistics uses the batch's, in eval mode too, and stays."""
    return type(norm) is _NORMS.get(type(layer)) and norm.running_mean is not None


def _fuse(layer: Any, norm: Any) -> nn.Module:
    fused: nn.Module = fuse_conv_bn_eval(layer, norm)
    return fused
