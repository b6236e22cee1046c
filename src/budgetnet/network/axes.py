"""Axes: hidden channels or heads that can be kept in part, where they lie in tensors, and what depends on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from budgetnet.network.layers import Choice, Places, scattered

Keeps = tuple[tuple[bool, ...], ...]
"""For each axis of a region, in order, which of its units are kept."""

REMEMBERED = 1024
"""Index tensors that a cut remembers."""


@dataclass(frozen=True)
class Axis:
    """Blocks of channels that can be kept in part, cut into units: unit u has the blocks bounds[u] to bounds[u + 1].

    Args:
        name: The name of the bundle.
        bounds: Where the units begin, and the number of blocks.
        channels: The channels of a block in the first layer that makes them.
    """

    name: str
    bounds: tuple[int, ...]
    channels: int = 1

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self.bounds) - 1

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return self.bounds[-1]

    @property
    def sizes(self) -> list[int]:
        """The number of blocks of each unit."""
        return [stop - start for start, stop in zip(self.bounds, self.bounds[1:], strict=False)]

    def width(self, keep: Sequence[bool]) -> int:
        """How many blocks the kept units have."""
        return sum(size for size, kept in zip(self.sizes, keep, strict=True) if kept)


@dataclass(frozen=True)
class Count:
    """A size that depends on the blocks that are kept: `base` + Σ per block · blocks kept, over some axes."""

    base: int
    per_block: tuple[tuple[int, int], ...] = ()

    def __call__(self, widths: Sequence[Any]) -> Any:
        """The size for so many blocks kept of each axis (numbers, or tensors of them)."""
        return self.base + sum(count * widths[axis] for axis, count in self.per_block)


@dataclass(frozen=True, eq=False)
class Cut:
    """A dimension of a tensor along which blocks lie: `parts` has, for an axis, its positions (blocks × per block)."""

    size: int
    parts: tuple[tuple[int, Tensor], ...]
    _known: dict[Any, Places] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> Count:
        """The size of the dimension."""
        per_block = tuple((axis, positions.shape[1]) for axis, positions in self.parts)
        return Count(self.size - sum(positions.numel() for _, positions in self.parts), per_block)

    def index(self, axes: Sequence[Axis], keeps: Keeps, device: torch.device) -> Places:
        """The positions that stay."""
        key = (device, *(keeps[axis] for axis, _ in self.parts))
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = self._index(axes, keeps, device)
        return self._known[key]

    def _index(self, axes: Sequence[Axis], keeps: Keeps, device: torch.device) -> Places:
        stays = np.ones(self.size, bool)
        for axis, positions in self.parts:
            stays[positions.numpy()] = np.repeat(keeps[axis], axes[axis].sizes)[:, None]
        index = np.flatnonzero(stays)
        if len(index) == self.size:
            return None
        if len(index) and index[-1] - index[0] + 1 == len(index):
            return slice(int(index[0]), int(index[-1]) + 1)
        return scattered(index, device)


@dataclass(frozen=True, eq=False)
class LayerCuts:
    """Where the blocks lie in the tensors of a layer, by name and dimension, and how many groups it has."""

    tensors: Mapping[str, Mapping[int, Cut]]
    groups: Count | None = None

    def choice(self, axes: Sequence[Axis], keeps: Keeps, device: torch.device) -> Choice:
        """What stays of the layer."""
        parts = {
            name: tuple((dim, cut.index(axes, keeps, device)) for dim, cut in cuts.items())
            for name, cuts in self.tensors.items()
        }
        widths = [axis.width(keep) for axis, keep in zip(axes, keeps, strict=True)]
        return Choice(parts, None if self.groups is None else self.groups(widths))


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A count that depends on what is kept: Σ coefficient · Π sizes. Exact for every set of units."""

    axes: tuple[Axis, ...]
    terms: tuple[tuple[float, tuple[Count, ...]], ...]

    def __call__(self, keeps: Keeps) -> float:
        """The count for one choice of units."""
        widths = [axis.width(keep) for axis, keep in zip(self.axes, keeps, strict=True)]
        return float(sum(factor * math.prod(count(widths) for count in counts) for factor, counts in self.terms))

    def evaluate(self, kept: Sequence[Tensor]) -> Tensor:
        """The counts for many choices: for each axis, which units are kept (n × units, bool)."""
        sizes = [torch.tensor(axis.sizes, dtype=torch.float64) for axis in self.axes]
        widths = [rows.double() @ size for rows, size in zip(kept, sizes, strict=True)]
        total = torch.zeros(len(kept[0]) if kept else 1, dtype=torch.float64)
        for coefficient, counts in self.terms:
            value: Any = coefficient
            for count in counts:
                value = value * count(widths)
            total = total + value
        return total
