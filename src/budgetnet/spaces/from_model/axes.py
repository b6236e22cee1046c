"""Hidden axes: channels that layers make and other layers read, in blocks that can be left out one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, fx, nn

from budgetnet.network.axes import Count, Cut
from budgetnet.spaces.from_model.labels import MULTIPLYING, Labels, squash
from budgetnet.spaces.from_model.lift import Lifted, arguments
from budgetnet.spaces.from_model.trace import operation

LARGE = 8
"""Blocks of so many channels, such as heads, are units by themselves."""
MOST_UNITS = 64


@dataclass(eq=False)
class Found:
    """An axis that was found: its blocks as labels, the values that it lies in, and how it is cut into units."""

    number: int
    blocks: list[np.ndarray]
    makers: list[fx.Node]
    values: dict[fx.Node, dict[int, Tensor]] = field(default_factory=dict)
    """For a value (or what a layer reads), the positions along each dimension: blocks × per block."""
    beside: dict[tuple[fx.Node, fx.Node], dict[int, Tensor]] = field(default_factory=dict)
    """For a call and an operand that is narrowed with it, the positions along the operand's dimensions."""
    table: Tensor = field(default_factory=lambda: torch.zeros(0))
    """For every label its block, or -1."""
    bounds: tuple[int, ...] = ()

    @property
    def calls(self) -> set[fx.Node]:
        """The calls that read or make a part of the axis."""
        readers = {user for value in self.values for user in value.users if user.op != "output"}
        return readers | set(self.values)

    @property
    def channels(self) -> int:
        """Channels of a block in the first layer that makes them."""
        dims = self.values[self.makers[0]]
        return next(iter(dims.values())).shape[1]


def main_values(lifted: Lifted, main_input: fx.Node) -> set[fx.Node]:
    """The values that are computed from the main input; masks and positions computed from it alone are not."""
    found = {main_input}
    whole = not main_input.meta["val"].is_floating_point()
    for node in lifted.graph.nodes:
        if node.op not in ("call_function", "call_module"):
            continue
        sources = [argument for argument in node.all_input_nodes if argument in found]
        if not sources or operation(node) in ("sym_size", "new_zeros", "new_ones", "new_full", "new_empty"):
            continue
        value = node.meta.get("val")
        floating = not isinstance(value, Tensor) or value.is_floating_point()
        if sources == [main_input] and whole and not isinstance(lifted.layer(node), nn.Embedding):
            continue
        if sources == [main_input] and not whole and not floating:
            continue
        found.add(node)
    return found


def find_axes(lifted: Lifted, labels: Labels, slices: int, round_to: int | None) -> tuple[list[Found], dict[str, str]]:
    """The axes whose blocks can be left out, and for every other layer that makes channels, the reason why not."""
    components = labels.components()
    tied = tied_layers(lifted)
    kinds: dict[tuple[tuple[int, int], ...], list[np.ndarray]] = {}
    makers = list(labels.made)
    starts = np.array([labels.made[node][0] for node in makers] or [0])
    order = np.argsort(components, kind="stable")
    ordered = components[order]
    bounds = np.flatnonzero(np.diff(ordered, prepend=-1, append=-2))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if ordered[start] == 0:
            continue
        block = np.sort(order[start:stop])
        which, counts = np.unique(np.searchsorted(starts, block, side="right") - 1, return_counts=True)
        kinds.setdefault(tuple(zip(which.tolist(), counts.tolist(), strict=True)), []).append(block)
    reasons = {str(node.target): _reason(labels, components, node) for node in makers}
    found: list[Found] = []
    for kind, blocks in kinds.items():
        nodes = [makers[i] for i, _ in kind]
        axis = Found(len(found), sorted(blocks, key=lambda block: int(block[0])), nodes)
        problem = "there is one block of channels that belong together" if len(blocks) < 2 else ""
        shared = [str(node.target) for node in nodes if node.target in tied]
        problem = problem or (f"{shared[0]} shares its weights" if shared else "") or _locate(axis, labels, tied)
        for node in nodes:
            reasons[str(node.target)] = (reasons[str(node.target)] or problem) if problem else ""
        if not problem:
            axis.bounds = unit_bounds(len(blocks), axis.channels, slices, round_to)
            if len(axis.bounds) > 2:
                found.append(axis)
    return found, {name: reason for name, reason in reasons.items() if reason}


def _reason(labels: Labels, components: np.ndarray, node: fx.Node) -> str:
    start, stop = labels.made[node]
    if not bool((components[start:stop] == 0).any()):
        return ""
    given = (labels.reasons[label] for label in range(start, stop) if label in labels.reasons)
    return next(given, "its channels are part of the stream between blocks")


def tied_layers(lifted: Lifted) -> set[str]:
    """Layers that the model calls more than once, or whose weights others have too."""
    calls = [str(node.target) for node in lifted.graph.nodes if node.op == "call_module"]
    owners: dict[int, list[str]] = {}
    for name, layer in lifted.layers.items():
        for parameter in layer.parameters():
            owners.setdefault(id(parameter), []).append(name)
    for name, tensor in lifted.tensors.items():
        if id(tensor) in owners:
            owners[id(tensor)] += [name, name]
    shared = {name for names in owners.values() if len(names) > 1 for name in names}
    return shared | {name for name in set(calls) if calls.count(name) > 1 and list(lifted.layers[name].parameters())}


def _locate(axis: Found, labels: Labels, tied: Collection[str]) -> str:
    """Finds the axis in every value and layer; a sentence if it cannot be left out somewhere."""
    block_of = np.full(labels._count, -1)
    for i, block in enumerate(axis.blocks):
        block_of[block] = i
    table = axis.table = torch.from_numpy(block_of)
    least, most = min(int(block[0]) for block in axis.blocks), max(int(block[-1]) for block in axis.blocks)
    for node, value in labels.values.items():
        low, high = labels.span(node)
        if high < least or low > most:
            continue
        if isinstance(value, Tensor):
            small = table[squash(value)]
            if bool((small >= 0).any()):
                dims = _positions(small, len(axis.blocks))
                if dims is None:
                    return f"{node.name} mixes them with others"
                axis.values[node] = dims
                if any(not _evenly(user, dims) for user in node.users if operation(user) == "slice"):
                    return f"{node.name} is cut across them"
        elif isinstance(value, tuple) and any(bool((table[squash(part)] >= 0).any()) for part in value):
            axis.values.setdefault(node, {})
    for beside in labels.beside:
        small = table[beside.labels]
        if bool((small >= 0).any()):
            found = _positions(small, len(axis.blocks))
            if found is None:
                return f"{beside.node.name} mixes them with others"
            lead = small.dim() - beside.operand.meta["val"].dim()
            wide = {dim - lead: places for dim, places in found.items() if dim >= lead}
            sizes = beside.operand.meta["val"].shape
            axis.beside[beside.node, beside.operand] = {d: places for d, places in wide.items() if sizes[d] != 1}
    for node in axis.calls:
        if node.op == "call_module" and node.target in tied:
            return f"{node.target} shares its weights"
    return ""


def _evenly(node: fx.Node, dims: dict[int, Tensor]) -> bool:
    """Whether a slice takes as many channels of every block."""
    given = arguments(node)
    places = dims.get(given["dim"] % node.args[0].meta["val"].dim())  # type: ignore[union-attr]
    bounds = [given[key] for key in ("start", "end") if isinstance(given[key], int) and given[key] != 0]
    return places is None or all(len((places < bound).sum(1).unique()) == 1 and bound > 0 for bound in bounds)


def _positions(blocks: Tensor, count: int) -> dict[int, Tensor] | None:
    """For each dimension, the positions that each block has alone; None if a block is not a box of the value."""
    dims: dict[int, Tensor] = {}
    covered = torch.zeros_like(blocks)
    for dim in range(blocks.dim()):
        rows = blocks.movedim(dim, 0).flatten(1)
        least, most = rows.amin(1), rows.amax(1)
        owner = torch.where(least == most, least, -1)
        if bool((owner >= 0).any()) and blocks.shape[dim] > 1:
            places = [(owner == block).nonzero().flatten() for block in range(count)]
            if len({len(place) for place in places}) > 1:
                return None
            dims[dim] = torch.stack(places)
            view = [1] * blocks.dim()
            view[dim] = -1
            covered = covered + (owner >= 0).long().view(view)
    return dims if dims and torch.equal(covered, (blocks >= 0).long()) else None


def unit_bounds(blocks: int, channels: int, slices: int, round_to: int | None) -> tuple[int, ...]:
    """Where units begin: heads are units by themselves, single channels are cut into about equal slices."""
    step = max(1, -(-(round_to or 1) // channels)) if channels < LARGE or round_to else 1
    pieces = blocks // step
    units = min(MOST_UNITS if channels >= LARGE else slices, pieces)
    if units < 2:
        return (0, blocks)
    cuts = [round(i * pieces / units) * step for i in range(units)]
    return (*cuts, blocks)


def cut_of(axes: Sequence[Found], node: fx.Node, dim: int, size: int, numbers: dict[int, int]) -> Cut | None:
    """The cut of one dimension of a value by these axes, numbered as in their region."""
    parts = [(numbers[axis.number], axis.values[node][dim]) for axis in axes if dim in axis.values.get(node, {})]
    return Cut(size, tuple(parts)) if parts else None


def count_of(axes: Sequence[Found], node: fx.Node, dim: int, size: int, numbers: dict[int, int]) -> Count:
    """The size of one dimension of a value, depending on what is kept."""
    cut = cut_of(axes, node, dim, size, numbers)
    return Count(size) if cut is None else cut.count


def multiplies(node: fx.Node) -> bool:
    """Whether a call without weights multiplies and adds."""
    return node.op == "call_function" and operation(node) in MULTIPLYING
