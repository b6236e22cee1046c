"""Layers with fewer channels: run with narrowed tensors, or made into smaller layers of the same class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
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
    """A part of a tensor."""
    for dim, places in part:
        value = pick(value, dim, places)
    return value


def parts_of(value: Tensor, parts: Sequence[Part]) -> tuple[Tensor, ...]:
    """Several parts of a tensor. The gradient is one sum of them, where autograd would make a whole tensor for each."""
    return tuple(_Parts.apply(value, tuple(parts)))  # type: ignore[no-untyped-call]


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, parts: tuple[Part, ...]) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.parts, ctx.like = parts, value.detach()
        return tuple(part_of(value, part) for part in parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        total = torch.zeros_like(ctx.like)
        for gradient, part in zip(gradients, ctx.parts, strict=True):
            if gradient is not None:
                for whole, piece in _blocks(total, gradient, part):
                    whole.add_(piece)
        return total, None


def _blocks(whole: Tensor, narrow: Tensor, part: Part) -> Iterator[tuple[Tensor, Tensor]]:
    """Blocks of neighbours of a tensor, and the same of a part of it."""
    dims = [(dim, _runs(places)) for dim, places in part if places is not None]
    for block in product(*(runs for _, runs in dims)):
        one, other = whole, narrow
        for (dim, _), (start, length, offset) in zip(dims, block, strict=True):
            one, other = one.narrow(dim, start, length), other.narrow(dim, offset, length)
        yield one, other


def _runs(places: slice | Scattered) -> Iterator[tuple[int, int, int]]:
    """Runs of neighbours: where each begins in the whole, its length, and where it begins in the part."""
    offset = 0
    for start, stop in places.runs if isinstance(places, Scattered) else [(places.start, places.stop)]:
        yield start, stop - start, offset
        offset += stop - start


class Narrowed(NamedTuple):
    """A layer, its tensors as far as they are kept, the positions kept of the last of them, and its groups."""

    layer: Any
    tensors: dict[str, Tensor | None]
    stays: Places
    groups: int | None


def run(state: Narrowed, x: Tensor) -> Tensor:
    """What the smaller layer gives; batch norm updates the statistics of the channels that are kept."""
    layer, tensors = state.layer, state.tensors
    if isinstance(layer, nn.Linear):
        return F.linear(x, _need(tensors["weight"]), tensors["bias"])
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return _batch_norm(state, x)
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(layer.kernel_size) - 1]
        options = (layer.stride, layer.padding, layer.output_padding, state.groups or layer.groups, layer.dilation)
        return transposed(x, _need(tensors["weight"]), tensors["bias"], *options)  # type: ignore[arg-type]
    if isinstance(layer, nn.modules.conv._ConvNd):
        convolve: Any = (F.conv1d, F.conv2d, F.conv3d)[len(layer.kernel_size) - 1]
        options_ = (layer.stride, layer.padding, layer.dilation, state.groups or layer.groups)
        result: Tensor = convolve(x, _need(tensors["weight"]), tensors["bias"], *options_)
        return result
    if isinstance(layer, nn.Embedding):
        return F.embedding(x, _need(tensors["weight"]), layer.padding_idx, scale_grad_by_freq=layer.scale_grad_by_freq)
    assert isinstance(layer, nn.PReLU), type(layer)
    return F.prelu(x, _need(tensors["weight"]))


def _batch_norm(state: Narrowed, x: Tensor) -> Tensor:
    """As `nn.BatchNorm`; with a single value per channel it uses its running statistics and updates nothing."""
    layer, tensors = state.layer, state.tensors
    mean, var = tensors["running_mean"], tensors["running_var"]
    training = layer.training and (x.numel() > x.shape[1] or mean is None)
    momentum = 0.0 if layer.momentum is None else layer.momentum
    if training and layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            momentum = 1.0 / float(layer.num_batches_tracked)
    output = F.batch_norm(
        x, mean, var, tensors["weight"], tensors["bias"], training or mean is None, momentum, layer.eps
    )
    if training and mean is not None and var is not None and isinstance(state.stays, Scattered):
        # `.data`: other groups have saved the statistics for the backward pass, which does not read them in training
        layer.running_mean.data.index_copy_(0, state.stays.positions, mean)
        layer.running_var.data.index_copy_(0, state.stays.positions, var)
    return output


def _need(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def shrink(state: Narrowed) -> nn.Module:
    """A layer of the same class with copies of the tensors that are kept."""
    layer: nn.Module = state.layer
    new: Any = layer.__class__.__new__(layer.__class__)
    new.__dict__ = dict(layer.__dict__)
    new._parameters = {
        name: None if old is None else nn.Parameter(_need(state.tensors[name]).detach().clone(), old.requires_grad)
        for name, old in layer._parameters.items()
    }
    new._buffers = {
        name: None if old is None else _need(state.tensors[name]).clone() for name, old in layer._buffers.items()
    }
    weight = state.tensors["weight"]
    if isinstance(layer, nn.Linear):
        new.out_features, new.in_features = _need(weight).shape
    elif isinstance(layer, nn.modules.batchnorm._BatchNorm):
        new.num_features = len(_need(next(v for v in state.tensors.values() if v is not None)))
    elif isinstance(layer, nn.modules.conv._ConvNd):
        new.groups = state.groups or layer.groups
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
