"""Which channels belong together: every output channel of a layer has a label, and labels travel with the values.

An operation that needs two channels together glues their labels: a gate glues the channels that it multiplies,
attention the channels of a head, a group norm all of them. Channels that are glued to label 0 must stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from budgetnet.spaces.from_model.lift import Lifted, arguments
from budgetnet.spaces.from_model.trace import operation

_ELEMENTWISE = """
add sub mul div true_divide relu gelu silu sigmoid tanh hardtanh relu6 hardswish hardsigmoid leaky_relu elu selu celu
softplus mish exp log pow sqrt rsqrt reciprocal neg abs clamp clamp_min clamp_max square sin cos erf _to_copy to clone
contiguous detach alias masked_fill where maximum minimum threshold log_sigmoid type_as float rsub addcmul
lift_fresh_copy
"""
ELEMENTWISE = frozenset(_ELEMENTWISE.split())
_SHAPE = """
view reshape _unsafe_view permute transpose t expand slice select unsqueeze squeeze flatten unflatten split
split_with_sizes chunk unbind getitem cat concat stack movedim swapaxes repeat_interleave numpy_T mT swapdims
"""
SHAPE = frozenset(_SHAPE.split())
_SPATIAL = """
max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d upsample_nearest1d upsample_nearest2d upsample_nearest3d
upsample_bilinear2d upsample_linear1d upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact2d pad
constant_pad_nd reflection_pad2d replication_pad2d roll flip
"""
SPATIAL = frozenset(_SPATIAL.split())
REDUCING = frozenset(
    ["mean", "sum", "amax", "amin", "var", "std", "softmax", "_softmax", "log_softmax", "norm", "linalg_vector_norm"]
)
MULTIPLYING = frozenset(["matmul", "bmm", "scaled_dot_product_attention"])

Made = tuple[int, int]
"""The labels of a layer's output channels: the first, and the one after the last."""


@dataclass(frozen=True, eq=False)
class Beside:
    """An operand without labels next to one with them: narrowed with it where it is not the same for all channels."""

    node: fx.Node
    operand: fx.Node
    labels: Tensor


class Labels:
    """The labels of all values of a graph, computed once; batch size 1."""

    def __init__(self, lifted: Lifted, main: Collection[fx.Node], ignored: Collection[str]) -> None:
        self.lifted, self.main, self.ignored = lifted, main, set(ignored)
        self.values: dict[fx.Node, Any] = {}
        self.made: dict[fx.Node, Made] = {}
        self.reads: dict[fx.Node, Tensor] = {}
        """For a layer that reads channels, the label of each."""
        self.beside: list[Beside] = []
        self.reasons: dict[int, str] = {}
        self._pairs: list[np.ndarray] = []
        self._spans: dict[fx.Node, tuple[int, int]] = {}
        self._count = 1
        for node in lifted.graph.nodes:
            if node in main:
                self.values[node] = self._of(node)
            elif node.op == "output" and isinstance(node.args[0], fx.Node):
                self.fix(self.values.get(node.args[0]), "it is the model's output")

    def components(self) -> np.ndarray:
        """For every label, the smallest label that it is glued to; 0 must stay."""
        component = self._components()
        for beside in self.beside:
            if beside.operand in self.main:
                labels = torch.from_numpy(component)[beside.labels]
                operand = self._label(beside.operand)
                if not harmless(operand, labels):
                    self.fix(labels, f"aten.{operation(beside.node)} joins them with channels that stay")
        return self._components()

    def _components(self) -> np.ndarray:
        component = np.arange(self._count)
        if not self._pairs:
            return component
        pairs = np.concatenate(self._pairs)
        while True:
            least = np.minimum(component[pairs[:, 0]], component[pairs[:, 1]])
            before = component.copy()
            np.minimum.at(component, pairs[:, 0], least)
            np.minimum.at(component, pairs[:, 1], least)
            np.minimum.at(component, before[pairs[:, 0]], least)
            np.minimum.at(component, before[pairs[:, 1]], least)
            component = component[component]
            if np.array_equal(before, component):
                return component

    def glue(self, one: Tensor, two: Tensor) -> None:
        """These labels belong together, element by element."""
        coded = np.unique((one * self._count + two).numpy())  # a pair as one number, which is faster to sort
        pairs = np.stack([coded // self._count, coded % self._count], 1)
        self._pairs.append(pairs[pairs[:, 0] != pairs[:, 1]])

    def fix(self, value: Any, reason: str) -> None:
        """These channels must stay."""
        for tensor in value if isinstance(value, tuple | list) else [value]:
            if isinstance(tensor, Tensor):
                found = np.unique(squash(tensor).numpy())
                found = found[found > 0]
                for label in found.tolist():
                    self.reasons.setdefault(label, reason)
                if len(found):
                    self._pairs.append(np.stack([found, np.zeros_like(found)], 1))

    def span(self, node: fx.Node) -> tuple[int, int]:
        """The smallest and the largest label of a value."""
        if node not in self._spans:
            value = self.values[node]
            parts = [squash(part) for part in (value if isinstance(value, tuple) else [value])]
            self._spans[node] = min(int(p.min()) for p in parts), max(int(p.max()) for p in parts)
        return self._spans[node]

    def _of(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self._zeros(node)
        layer = self.lifted.layer(node)
        if layer is not None:
            return self._layer(node, layer)
        name = operation(node)
        if name in ELEMENTWISE:
            return self._elementwise(node)
        if name in SHAPE:
            return self._shape(node)
        if name in SPATIAL:
            return self._spatial(node)
        if name in REDUCING:
            return self._reduced(node, name)
        if name == "matmul" or name == "bmm":
            one, two = (self._label(argument) for argument in node.args[:2])
            return self._product(node, one, two)
        if name == "scaled_dot_product_attention":
            return self._attention(node)
        return self._unknown(node, f"aten.{name} may mix channels")

    def _label(self, argument: Any) -> Tensor:
        """The labels of an argument; zeros for a value that is no part of the main computation."""
        value = self.values.get(argument)
        return value if isinstance(value, Tensor) else self._zeros(argument)

    def _zeros(self, node: fx.Node) -> Any:
        value = node.meta["val"]
        if isinstance(value, tuple | list):
            return tuple(torch.zeros(1, dtype=torch.int64).expand(shape(part)) for part in value)
        return torch.zeros(1, dtype=torch.int64).expand(shape(value))

    def _unknown(self, node: fx.Node, reason: str) -> Any:
        for argument in node.all_input_nodes:
            self.fix(self.values.get(argument), reason)
        return self._zeros(node)

    def _fresh(self, node: fx.Node, count: int, dim: int) -> Tensor:
        start, self._count = self._count, self._count + count
        self.made[node] = (start, self._count)
        sizes = shape(node.meta["val"])
        view = [1] * len(sizes)
        view[dim] = count
        return torch.arange(start, start + count).view(view).expand(sizes)

    def _along(self, value: Tensor, dim: int, reason: str) -> Tensor:
        """The labels along a dimension, where all others agree; otherwise they must stay."""
        small = squash(value).movedim(dim, 0).flatten(1)
        if small.shape[1] and bool((small != small[:, :1]).any()):
            self.fix(value, reason)
            return torch.zeros(value.shape[dim], dtype=torch.int64)
        return small[:, 0].expand(value.shape[dim]).clone()

    def _layer(self, node: fx.Node, layer: nn.Module) -> Tensor:
        (source,) = node.args
        value = self._label(source)
        kept = any(str(node.target) == name or str(node.target).startswith(name + ".") for name in self.ignored)
        if kept:
            self.fix(value, "it is ignored")
        if isinstance(layer, nn.Linear | nn.modules.conv._ConvNd | nn.Embedding):
            made = self._weighted(node, layer, value)
            if kept:
                self.fix(made, "it is ignored")
            return made
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) or (
            isinstance(layer, nn.PReLU) and layer.num_parameters > 1
        ):
            self.reads[node] = self._along(value, 1, f"{node.target} reads channels that were moved about")
        elif isinstance(layer, nn.LayerNorm | nn.RMSNorm):
            for dim in range(1, len(layer.normalized_shape) + 1):
                self._glue_along(
                    value, value.dim() - dim, f"{node.target} ({type(layer).__name__}) reaches across them"
                )
        elif isinstance(layer, nn.GroupNorm):
            self._glue_along(value, 1, f"{node.target} (GroupNorm) reaches across them")
        return value

    def _weighted(self, node: fx.Node, layer: nn.Module, value: Tensor) -> Tensor:
        if isinstance(layer, nn.Embedding):
            return self._fresh(node, layer.embedding_dim, -1)
        reason = f"{node.target} reads channels that were moved about"
        if isinstance(layer, nn.Linear):
            self.reads[node] = self._along(value, value.dim() - 1, reason)
            return self._fresh(node, layer.out_features, -1)
        assert isinstance(layer, nn.modules.conv._ConvNd)
        channel = node.meta["val"].dim() - layer.weight.dim() + 1  # an input without a batch is refused before
        read = self.reads[node] = self._along(value, channel, reason)
        made = self._fresh(node, layer.out_channels, channel)
        if layer.groups > 1:
            labels = torch.arange(*self.made[node]).view(layer.groups, -1)
            groups = read.view(layer.groups, -1)
            self.glue(groups, groups[:, :1].expand_as(groups))
            self.glue(labels, groups[:, :1].expand_as(labels))
        return made

    def _glue_along(self, value: Tensor, dim: int, reason: str) -> Tensor:
        """Labels along a dimension belong together; gives one of them, with that dimension of size 1."""
        small = squash(value)
        first = small.narrow(dim, 0, 1)
        if bool((small != first).any()):
            if bool((first == 0).any()) or bool((small == 0).any()):
                self.fix(small, reason)
            self.glue(small, first.expand_as(small))
            for label in (np.unique(small.numpy()).tolist())[:4096]:
                self.reasons.setdefault(label, reason)
        sizes = list(value.shape)
        sizes[dim] = 1
        return first.expand(sizes)

    def _elementwise(self, node: fx.Node) -> Tensor:
        sizes = shape(node.meta["val"])
        tensors = [a for a in node.args if isinstance(a, fx.Node) and isinstance(a.meta.get("val"), Tensor)]
        result = torch.zeros(1, dtype=torch.int64).expand(sizes)
        known = False
        for argument in sorted(tensors, key=lambda a: not bool(squash(self._label(a)).any())):
            value = self._label(argument)
            if not known:
                result, known = value.expand(sizes), True
            else:
                result = self._match(node, result, value, argument)
        return result

    def _match(self, node: fx.Node, one: Tensor, two: Tensor, operand: fx.Node | None = None) -> Tensor:
        """The labels of an element-wise result; an operand without labels is looked at when all labels are known."""
        sizes = one.shape
        if not bool(squash(two).any()) and (operand is not None or harmless(two, one)):
            if operand is not None and not harmless(two, one):
                self.beside.append(Beside(node, operand, squash(one)))
            return one
        wide = two.expand(sizes)
        if harmless(one, two):
            return wide
        small, other = squash(one), squash(wide)
        small, other = small + torch.zeros_like(other), other + torch.zeros_like(small)
        if bool(((small == 0) != (other == 0)).any()):
            reason = f"aten.{operation(node)} joins them with channels that stay"
            self.fix(torch.where(other == 0, small, 0), reason)
            self.fix(torch.where(small == 0, other, 0), reason)
        self.glue(small, other)
        return torch.where(small == 0, other, small).expand(sizes)

    def _shape(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]

        def label(argument: fx.Node) -> Any:
            value = argument.meta.get("val")
            return self._label(argument) if isinstance(value, Tensor) else number(value)

        args: Any = fx.map_arg(node.args, label)
        kwargs: Any = fx.map_arg(node.kwargs, label)
        if operation(node) in ("view", "_unsafe_view"):
            return args[0].reshape(args[1])
        result = node.target(*args, **kwargs)  # type: ignore[operator]
        return tuple(result) if isinstance(result, list) else result

    def _spatial(self, node: fx.Node) -> Any:
        """Pooling, padding and resizing: labels do not change along the last dimensions."""
        value = self._label(node.args[0])
        small, sizes = squash(value), shape(node.meta["val"])
        if len(sizes) != value.dim():
            return self._unknown(node, f"aten.{operation(node)} may mix channels")
        for dim in range(value.dim()):
            if sizes[dim] != value.shape[dim] or dim >= 2 or operation(node) in ("roll", "flip"):
                if small.shape[dim] > 1 and bool((small != small.narrow(dim, 0, 1)).any()):
                    if operation(node) in ("roll", "flip") and dim not in _dims(node, value.dim()):
                        continue
                    return self._unknown(node, f"aten.{operation(node)} moves channels")
                small = small.narrow(dim, 0, 1)
        return small.expand(sizes)

    def _reduced(self, node: fx.Node, name: str) -> Tensor:
        value = self._label(node.args[0])
        for dim in _dims(node, value.dim()):
            reason = f"aten.{name} reaches across them"
            if "softmax" in name:
                self._glue_along(value, dim, reason)
            else:
                value = self._glue_along(value, dim, reason)
        return value.reshape(shape(node.meta["val"])) if "softmax" not in name else value

    def _product(self, node: fx.Node, one: Tensor, two: Tensor) -> Tensor:
        if one.dim() < 2 or two.dim() < 2:
            result: Tensor = self._unknown(node, "aten.matmul may mix channels")
            return result
        left = self._glue_along(one, one.dim() - 1, "a product reaches across them")
        right = self._glue_along(two, two.dim() - 2, "a product reaches across them")
        sizes = shape(node.meta["val"])
        return self._match(node, left.expand(sizes), right.expand(sizes))

    def _attention(self, node: fx.Node) -> Tensor:
        given = arguments(node)
        query, key, value = (self._label(given[name]) for name in ("query", "key", "value"))
        if given["enable_gqa"] and key.shape[-3] != query.shape[-3]:
            times = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
        scores = self._glue_along(query, query.dim() - 1, "attention reaches across a head")
        others = self._glue_along(key, key.dim() - 1, "attention reaches across a head").transpose(-2, -1)
        pairs = (scores + others).shape
        scores = self._match(node, scores.expand(pairs), others.expand(pairs))
        mask = given["attn_mask"]
        if mask is not None:
            scores = self._match(node, scores.expand((scores + self._label(mask)).shape), self._label(mask), mask)
        scores = self._glue_along(scores, scores.dim() - 1, "attention reaches across positions")
        value = self._glue_along(value, value.dim() - 2, "attention reaches across positions")
        sizes = shape(node.meta["val"])
        return self._match(node, value.expand(sizes), scores.expand(sizes))


def squash(value: Tensor) -> Tensor:
    """One element of each dimension along which nothing changes, since it is expanded."""
    for dim, stride in enumerate(value.stride()):
        if stride == 0 and value.shape[dim] > 1:
            value = value.narrow(dim, 0, 1)
    return value


def harmless(operand: Tensor, labelled: Tensor) -> bool:
    """Whether an operand has no labels and is the same along all dimensions along which the labels differ."""
    if bool((squash(operand) != 0).any()):
        return False
    small = squash(labelled)
    lead = labelled.dim() - operand.dim()
    return all(
        dim < lead or operand.shape[dim - lead] == 1 or not bool((small != small.narrow(dim, 0, 1)).any())
        for dim in range(labelled.dim())
    )


def shape(value: Tensor) -> list[int]:
    """The shape of a traced value for one example."""
    return [number(size) for size in value.shape]


def number(size: Any) -> int:
    """A traced size for one example."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.subs(dict.fromkeys(expression.free_symbols, 1)))


def _dims(node: fx.Node, count: int) -> list[int]:
    given = arguments(node)
    dims = next((given[key] for key in ("dim", "dims") if given.get(key) is not None), None)
    if dims is None:
        return list(range(count))
    return [dim % count for dim in (dims if isinstance(dims, list | tuple) else [dims])]
