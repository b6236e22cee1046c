"""Operations with weights become `torch.nn` layers again, which own the model's parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from budgetnet.spaces.from_model.trace import Trace, operation, path_of

aten = torch.ops.aten
_TENSORS = ("weight", "bias", "running_mean", "running_var")


class Lifted:
    """The model as a graph whose layers are modules; `tensors` are those that are read outside of layers."""

    def __init__(self, traced: Trace) -> None:
        self.graph, self.spec = traced.graph, traced.spec
        self.layers: dict[str, nn.Module] = {}
        self.tensors = dict(traced.tensors)
        self._by_weight: dict[tuple[Any, ...], str] = {}

    def layer(self, node: fx.Node) -> nn.Module | None:
        """The layer that a node calls."""
        return self.layers[str(node.target)] if node.op == "call_module" else None

    def add(self, name: str, layer: nn.Module) -> str:
        """Keeps a layer under a name that nobody else has."""
        name = name or type(layer).__name__.lower()
        if any(name.startswith(other + ".") for other in self.layers):
            name = name.replace(".", "_")  # a layer holds no other layers
        target, attempt = name, 1
        while target in self.layers or any(other.startswith(target + ".") for other in self.layers):
            attempt += 1
            target = f"{name}_{attempt}"
        self.layers[target] = layer
        return target


def lift(traced: Trace) -> Lifted:
    """The graph with layers instead of operations on weights."""
    lifted = Lifted(traced)
    _fold_constants(lifted)
    for node in list(lifted.graph.nodes):
        if node.op == "call_function":
            _lift(lifted, node)
    lifted.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    read = {node.target for node in lifted.graph.nodes if node.op == "get_attr"}
    lifted.tensors = {name: tensor for name, tensor in lifted.tensors.items() if name in read}
    return lifted


def _fold_constants(lifted: Lifted) -> None:
    """What is computed from nothing becomes a tensor of the model, and what is made in the size of a batch follows it.

    Otherwise both would stay on the device on which the model was exported.
    """
    source = next(node for node in lifted.graph.nodes if node.op == "placeholder")
    constant: dict[fx.Node, Any] = {}
    for node in list(lifted.graph.nodes):
        if node.op != "call_function":
            continue
        _leave_device(node)
        if all(argument in constant for argument in node.all_input_nodes) and _is_pure(node):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda old: constant[old])
            constant[node] = node.target(*args, **kwargs)
        elif operation(node) in ("zeros", "ones", "full", "empty"):
            _follow(lifted, node, source)
    for node, value in constant.items():
        if isinstance(value, Tensor) and any(user not in constant for user in node.users):
            name = f"constants.{node.name}"
            lifted.tensors[name] = value
            with lifted.graph.inserting_before(node):
                new = lifted.graph.get_attr(name)
            new.meta = dict(node.meta)
            node.replace_all_uses_with(new)


def _leave_device(node: fx.Node) -> None:
    """A conversion keeps the type of numbers that it gives, not the device of the export."""
    if node.target is aten.to.device:
        given = arguments(node)
        node.target = aten.to.dtype
        node.args, node.kwargs = (given["self"], given["dtype"]), {}
    elif "device" in node.kwargs and operation(node) in (  # factories that follow another tensor
        "_to_copy",
        "to",
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
    ):
        node.kwargs = {key: value for key, value in node.kwargs.items() if key != "device"}


def _is_pure(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(node.target, torch._ops.OpOverload) and isinstance(value, Tensor)


def _follow(lifted: Lifted, node: fx.Node, source: fx.Node) -> None:
    new_one = {"zeros": aten.new_zeros, "ones": aten.new_ones, "full": aten.new_full, "empty": aten.new_empty}
    kwargs = {key: value for key, value in node.kwargs.items() if key == "dtype"}
    kwargs.setdefault("dtype", node.meta["val"].dtype)
    with lifted.graph.inserting_before(node):
        new = lifted.graph.call_function(new_one[operation(node)].default, (source, *node.args), kwargs)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    lifted.graph.erase_node(node)


def arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a torch operation by name, with its defaults."""
    schema = node.target._schema  # type: ignore[union-attr]
    bound = {argument.name: argument.default_value for argument in schema.arguments}
    bound |= {argument.name: value for argument, value in zip(schema.arguments, node.args, strict=False)}
    return bound | dict(node.kwargs)


def _lift(lifted: Lifted, node: fx.Node) -> None:
    if not isinstance(node.target, torch._ops.OpOverload):
        return
    name, given = operation(node), arguments(node)
    if name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        _dropout(lifted, node, name, given)
    elif name in ("relu", "relu6", "hardtanh"):
        rectifier = _rectifier(name, given)
        _replace(lifted, node, lifted.add(_own_path(node, rectifier), rectifier), given["self"])
    elif name == "scaled_dot_product_attention" and given["dropout_p"]:
        _attention(lifted, node, given)
    elif name in _MAKERS:
        weights = [
            given[key] for key in ("weight", "bias", "running_mean", "running_var") if given.get(key) is not None
        ]
        if not all(isinstance(weight, fx.Node) and weight.op == "get_attr" for weight in weights):
            return
        tensors = {key: lifted.tensors[given[key].target] if given.get(key) is not None else None for key in _TENSORS}
        layer = _MAKERS[name](node, given, tensors)
        if layer is not None:
            _own(lifted, layer, tensors, given)
            value = given["indices"] if name == "embedding" else given["input" if "input" in given else "self"]
            _replace(lifted, node, _known(lifted, node, layer, given, weights), value)


def _own(lifted: Lifted, layer: nn.Module, tensors: Mapping[str, Tensor | None], given: Mapping[str, Any]) -> None:
    """Puts the model's own parameters and buffers into the layer."""
    for key, tensor in tensors.items():
        if key in layer._parameters:
            if tensor is not None and not isinstance(tensor, nn.Parameter):
                tensor = nn.Parameter(tensor, requires_grad=False)
            layer._parameters[key] = tensor
        elif key in layer._buffers:
            layer._buffers[key] = tensor
    if "num_batches_tracked" in layer._buffers and layer._buffers["num_batches_tracked"] is not None:
        prefix = given["running_mean"].target.rpartition(".")[0]
        counter = lifted.tensors.get(f"{prefix}.num_batches_tracked")
        layer._buffers["num_batches_tracked"] = torch.tensor(0) if counter is None else counter


def _known(lifted: Lifted, node: fx.Node, layer: nn.Module, given: Mapping[str, Any], weights: list[fx.Node]) -> str:
    """The name of the layer; a layer that the model calls twice is one layer."""
    key = (repr(layer), *(weight.target for weight in weights))
    if weights and key in lifted._by_weight:
        return lifted._by_weight[key]
    name = str(weights[0].target) if weights else path_of(node)
    for ending in (".weight", "_weight", ".bias", ".running_mean"):
        name = name.removesuffix(ending)
    name = lifted.add(name, layer)
    lifted._by_weight[key] = name
    return name


def _replace(lifted: Lifted, node: fx.Node, target: str, value: Any) -> None:
    with lifted.graph.inserting_before(node):
        new = lifted.graph.call_module(target, (value,))
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    lifted.graph.erase_node(node)


def _dropout(lifted: Lifted, node: fx.Node, name: str, given: Mapping[str, Any]) -> None:
    if not given["p"] or not given["train"]:
        node.replace_all_uses_with(given["input"])
        lifted.graph.erase_node(node)
        return
    kinds: dict[str, Callable[[float], nn.Module]] = {
        "dropout": nn.Dropout,
        "alpha_dropout": nn.AlphaDropout,
        "feature_alpha_dropout": nn.FeatureAlphaDropout,
        "feature_dropout": (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)[min(max(node.meta["val"].dim() - 3, 0), 2)],
    }
    layer = kinds[name](given["p"])
    _replace(lifted, node, lifted.add(_own_path(node, layer), layer), given["input"])


def _rectifier(name: str, given: Mapping[str, Any]) -> nn.Module:
    if name == "hardtanh" and (given["min_val"], given["max_val"]) != (0, 6):
        return nn.Hardtanh(given["min_val"], given["max_val"])
    return nn.ReLU() if name == "relu" else nn.ReLU6()


def _own_path(node: fx.Node, layer: nn.Module) -> str:
    """The path of the model's own module for a call without weights, or of a new one inside the module that made it."""
    path, kind = path_of(node), type(layer).__name__
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return path if stack and str(stack[-1][1]).endswith(f".{kind}") else f"{path}.{kind.lower()}".lstrip(".")


def _attention(lifted: Lifted, node: fx.Node, given: Mapping[str, Any]) -> None:
    """Attention with dropout, written out: the fused operation cannot know whether it is training."""
    q, k, v, mask = given["query"], given["key"], given["value"], given["attn_mask"]
    scale = given["scale"] if given["scale"] is not None else q.meta["val"].shape[-1] ** -0.5
    if given["is_causal"] or (given["enable_gqa"] and k.meta["val"].shape[-3] != q.meta["val"].shape[-3]):
        return

    def make(target: Any, *args: Any) -> fx.Node:
        values = fx.map_arg(args, lambda old: old.meta["val"])
        new = lifted.graph.call_function(target, args)
        new.meta = {**node.meta, "val": target(*values)}
        return new

    with lifted.graph.inserting_before(node):
        scores = make(aten.matmul.default, make(aten.mul.Tensor, q, scale), make(aten.transpose.int, k, -2, -1))
        if mask is not None:
            if mask.meta["val"].dtype == torch.bool:
                scores = make(aten.masked_fill.Scalar, scores, make(aten.logical_not.default, mask), float("-inf"))
            else:
                scores = make(aten.add.Tensor, scores, mask)
        probabilities = make(aten.softmax.int, scores, -1)
        target = lifted.add(f"{path_of(node)}.attention_dropout".lstrip("."), nn.Dropout(given["dropout_p"]))
        dropped = lifted.graph.call_module(target, (probabilities,))
        dropped.meta = dict(probabilities.meta)
        result = make(aten.matmul.default, dropped, v)
    node.replace_all_uses_with(result)
    lifted.graph.erase_node(node)


def _pair(value: Any, count: int) -> Any:
    return (
        tuple(value) * count
        if isinstance(value, list | tuple) and len(value) == 1
        else value
        if isinstance(value, str)
        else tuple(value)
    )


def _linear(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    weight = tensors["weight"]
    if weight is None or weight.dim() != 2:
        return None
    return nn.Linear(weight.shape[1], weight.shape[0], tensors["bias"] is not None, device="meta")


def _conv(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    weight = tensors["weight"]
    assert weight is not None
    dims = weight.dim() - 2
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    padding = given["padding"]
    return kind(
        weight.shape[1] * given["groups"],
        weight.shape[0],
        tuple(weight.shape[2:]),  # type: ignore[arg-type]
        stride=_pair(given["stride"], dims),
        padding=padding if isinstance(padding, str) else _pair(padding, dims),
        dilation=_pair(given["dilation"], dims),
        groups=given["groups"],
        bias=tensors["bias"] is not None,
        device="meta",
    )


def _conv_transpose(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    weight = tensors["weight"]
    assert weight is not None
    dims = weight.dim() - 2
    kind = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    return kind(
        weight.shape[0],
        weight.shape[1] * given["groups"],
        tuple(weight.shape[2:]),  # type: ignore[arg-type]
        stride=_pair(given["stride"], dims),
        padding=_pair(given["padding"], dims),
        output_padding=_pair(given["output_padding"], dims),
        groups=given["groups"],
        bias=tensors["bias"] is not None,
        dilation=_pair(given["dilation"], dims),
        device="meta",
    )


def _batch_norm(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    if not given["training"]:
        return None
    dims = node.meta["val"].dim()
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[dims]
    return kind(
        node.meta["val"].shape[1],
        eps=given["eps"],
        momentum=given["momentum"],
        affine=tensors["weight"] is not None,
        track_running_stats=tensors["running_mean"] is not None,
        device="meta",
    )


def _layer_norm(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    affine = tensors["weight"] is not None
    return nn.LayerNorm(given["normalized_shape"], given["eps"], affine, tensors["bias"] is not None, device="meta")


def _group_norm(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    channels = node.meta["val"].shape[1]
    return nn.GroupNorm(given["num_groups"], channels, given["eps"], tensors["weight"] is not None, device="meta")


def _rms_norm(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    return nn.RMSNorm(given["normalized_shape"], given["eps"], tensors["weight"] is not None, device="meta")


def _embedding(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    weight = tensors["weight"]
    assert weight is not None
    padding = given["padding_idx"] if given["padding_idx"] >= 0 else None
    by_frequency = given["scale_grad_by_freq"]
    return nn.Embedding(
        weight.shape[0], weight.shape[1], padding_idx=padding, scale_grad_by_freq=by_frequency, device="meta"
    )


def _prelu(node: fx.Node, given: Mapping[str, Any], tensors: Mapping[str, Tensor | None]) -> nn.Module | None:
    weight = tensors["weight"]
    assert weight is not None
    return nn.PReLU(weight.numel(), device="meta")


_MAKERS: Mapping[str, Callable[..., nn.Module | None]] = {
    "linear": _linear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _conv_transpose),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "embedding": _embedding,
    "prelu": _prelu,
}
