"""Layers with fewer channels: run with narrowed tensors, or made into smaller layers of the same class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Scattered(NamedTuple):
    """Positions of a dimension that are no neighbours, and where their runs of neighbours begin and end."""

    positions: Tensor
    runs: tuple[tuple[int, int], ...]


Places = slice | Scattered | None
"""Which positions of a dimension: all (None), neighbours (a slice), or any."""
Part = tuple[tuple[int, Places], ...]
"""A part of a tensor: for some dimensions, the positions that stay."""


def scattered(index: np.ndarray, device: torch.device) -> Scattered:
    """Positions (ascending) that are no neighbours."""
    ends = np.flatnonzero(np.diff(index) != 1)
    starts, stops = index[[0, *(ends + 1)]].tolist(), (index[[*ends, -1]] + 1).tolist()
    return Scattered(torch.from_numpy(index).to(device), tuple(zip(starts, stops, strict=True)))


def pick(value: Tensor, dim: int, places: Places) -> Tensor:
    """The part of a value at these positions of a dimension; a view if they are neighbours."""
    if isinstance(places, Scattered):
        return value.index_select(dim, places.positions)
    return value if places is None else value.narrow(dim, places.start, places.stop - places.start)


def part_of(value: Tensor, part: Part) -> Tensor:
    """A part of a tensor, in the tensor's memory format."""
    last = channels_last(value)
    value = _as_it_lies(value) if last else value
    for dim, places in part:
        value = pick(value, _LIES[dim] if last else dim, places)
    return value.permute(0, 3, 1, 2) if last else value


def parts_of(value: Tensor, parts: Sequence[Part], last: bool = False) -> tuple[Tensor, ...]:
    """Several parts of a tensor, `last` if they should be channels last.

    The gradient is one sum of theirs, where autograd would make a whole tensor for each.
    """
    return tuple(_Parts.apply(value, tuple(parts), last))  # type: ignore[no-untyped-call]


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, parts: tuple[Part, ...], last: bool) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.parts, ctx.like = parts, value.detach()
        laid = value.contiguous(memory_format=torch.channels_last) if last and value.dim() == 4 else value
        return tuple(part_of(laid, part) for part in parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        known = [(gradient, part) for gradient, part in zip(gradients, ctx.parts, strict=True) if gradient is not None]
        last = any(channels_last(gradient) for gradient, _ in known)
        total = torch.zeros_like(ctx.like, memory_format=torch.channels_last if last else torch.contiguous_format)
        for gradient, part in known:
            if last:
                _add_part(_as_it_lies(total), _as_it_lies(gradient), [(_LIES[dim], places) for dim, places in part])
            else:
                _add_part(total, gradient, part)
        return total, None, None


def _add_part(total: Tensor, narrow: Tensor, part: Sequence[tuple[int, Places]]) -> None:
    """Adds a part to the whole: along all cut dimensions but the last, it is widened first."""
    cut = [(dim, places) for dim, places in part if places is not None]
    for number, (dim, places) in enumerate(cut):
        done = number == len(cut) - 1
        shape = [*narrow.shape[:dim], total.shape[dim], *narrow.shape[dim + 1 :]]
        target = total if done else narrow.new_zeros(shape)
        if isinstance(places, Scattered):
            target.index_add_(dim, places.positions, narrow)
        else:
            target.narrow(dim, places.start, places.stop - places.start).add_(narrow)
        narrow = target
    if not cut:
        total.add_(narrow)


_LIES = (0, 3, 1, 2)
"""Where the dimensions of a tensor that is channels last lie in memory."""


def channels_last(value: Tensor) -> bool:
    """Whether a tensor lies in memory as images with their channels last, and not as others do."""
    return value.dim() == 4 and not value.is_contiguous() and value.is_contiguous(memory_format=torch.channels_last)


def _as_it_lies(value: Tensor) -> Tensor:
    return value.permute(0, 2, 3, 1)


class Choice(NamedTuple):
    """What stays of a layer: the parts of its tensors by name, and its groups."""

    parts: Mapping[str, Part]
    groups: int | None


class Narrowed(NamedTuple):
    """A layer, its parameters as far as they are kept, and what stays of it."""

    layer: Any
    tensors: Mapping[str, Tensor | None]
    choice: Choice


def narrowed(layer: nn.Module, choices: Sequence[Choice], last: bool = False) -> list[Narrowed]:
    """The layer for each of some choices."""
    found: list[dict[str, Tensor | None]] = [dict(layer._parameters) for _ in choices]
    for name, tensor in layer._parameters.items():
        if tensor is not None and name in choices[0].parts:
            parts = parts_of(tensor, [choice.parts[name] for choice in choices], last)
            for tensors, part in zip(found, parts, strict=True):
                tensors[name] = part
    return [Narrowed(layer, tensors, choice) for tensors, choice in zip(found, choices, strict=True)]


def run(state: Narrowed, x: Tensor) -> Tensor:
    """What the smaller layer gives; batch norm updates the statistics of the channels that are kept."""
    layer, tensors = state.layer, state.tensors
    if isinstance(layer, nn.Linear):
        return F.linear(x, _need(tensors["weight"]), tensors["bias"])
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return _batch_norm(state, x)
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(layer.kernel_size) - 1]
        options = (
            layer.stride,
            layer.padding,
            layer.output_padding,
            state.choice.groups or layer.groups,
            layer.dilation,
        )
        return transposed(x, _need(tensors["weight"]), tensors["bias"], *options)  # type: ignore[arg-type]
    if isinstance(layer, nn.modules.conv._ConvNd):
        convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[len(layer.kernel_size) - 1]
        options_ = (layer.stride, layer.padding, layer.dilation, state.choice.groups or layer.groups)
        result: Tensor = convolve(x, _need(tensors["weight"]), tensors["bias"], *options_)
        return result
    if isinstance(layer, nn.Embedding):
        return F.embedding(x, _need(tensors["weight"]), layer.padding_idx, scale_grad_by_freq=layer.scale_grad_by_freq)
    assert isinstance(layer, nn.PReLU), type(layer)
    return F.prelu(x, _need(tensors["weight"]))


def _batch_norm(state: Narrowed, x: Tensor) -> Tensor:
    """As `nn.BatchNorm`; with a single value per channel it uses its running statistics and updates nothing."""
    layer, tensors = state.layer, state.tensors
    mean, var = (_buffer(state, name) for name in ("running_mean", "running_var"))
    training = layer.training and (x.numel() > x.shape[1] or mean is None)
    momentum = 0.0 if layer.momentum is None else layer.momentum
    if training and layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            momentum = 1.0 / float(layer.num_batches_tracked)
    output = F.batch_norm(
        x, mean, var, tensors["weight"], tensors["bias"], training or mean is None, momentum, layer.eps
    )
    if training and mean is not None and var is not None:
        ((_, stays),) = state.choice.parts["running_mean"]
        if isinstance(stays, Scattered):
            # `.data`: other groups have saved the statistics for the backward pass, which does not read them
            layer.running_mean.data.index_copy_(0, stays.positions, mean)
            layer.running_var.data.index_copy_(0, stays.positions, var)
    return output


def _buffer(state: Narrowed, name: str) -> Tensor | None:
    """A buffer as far as it is kept, as it is now: a run may have changed it since the parameters were narrowed."""
    buffer = state.layer._buffers.get(name)
    return None if buffer is None else part_of(buffer, state.choice.parts.get(name, ()))


def _need(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def shrink(layer: nn.Module, choice: Choice) -> nn.Module:
    """A layer of the same class with copies of the tensors that are kept."""
    with torch.no_grad():
        (state,) = narrowed(layer, [choice])
    new: Any = layer.__class__.__new__(layer.__class__)
    new.__dict__ = dict(layer.__dict__)
    new._parameters = {
        name: None if old is None else nn.Parameter(_need(state.tensors[name]).detach().clone(), old.requires_grad)
        for name, old in layer._parameters.items()
    }
    new._buffers = {
        name: None if old is None else _need(_buffer(state, name)).clone() for name, old in layer._buffers.items()
    }
    weight = state.tensors["weight"]
    if isinstance(layer, nn.Linear):
        new.out_features, new.in_features = _need(weight).shape
    elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
        new.num_features = len(next(v for v in [*new._parameters.values(), *new._buffers.values()] if v is not None))
    elif isinstance(layer, nn.modules.conv._ConvNd):
        new.groups = state.choice.groups or layer.groups
        outer, inner = _need(weight).shape[:2]
        if layer.transposed:
            new.in_channels, new.out_channels = outer, inner * new.groups
        else:
            new.out_channels, new.in_channels = outer, inner * new.groups
    elif isinstance(layer, nn.Embedding):
        new.embedding_dim = _need(weight).shape[1]
    elif isinstance(layer, nn.PReLU):
        new.num_parameters = len(_need(weight))
    return new  # type: ignore[no-any-return]
