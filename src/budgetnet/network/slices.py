"""`Region`: a part of a network with one input and one output whose hidden channels or heads can be kept in part.

An axis is a set of interchangeable blocks of channels (single channels, heads, key/value groups) that some layers make
and others read. Its units are runs of blocks; each is an edge of the graph, and the units of an axis are a bundle.
A region runs with narrowed weights: what is not kept is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from budgetnet.network.layers import Narrowed, run, shrink

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

    def kept(self, keep: Sequence[bool]) -> Tensor:
        """The blocks of the kept units, as a mask."""
        return torch.repeat_interleave(torch.tensor(keep), torch.tensor(self.sizes))

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
    _known: dict[Any, slice | Tensor | None] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> Count:
        """The size of the dimension."""
        per_block = tuple((axis, positions.shape[1]) for axis, positions in self.parts)
        return Count(self.size - sum(positions.numel() for _, positions in self.parts), per_block)

    def index(self, axes: Sequence[Axis], keeps: Keeps, device: torch.device) -> slice | Tensor | None:
        """The positions that stay: all (None), neighbours (a slice) or any (an index)."""
        key = (device, *(keeps[axis] for axis, _ in self.parts))
        if key not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = self._index(axes, keeps, device)
        return self._known[key]

    def _index(self, axes: Sequence[Axis], keeps: Keeps, device: torch.device) -> slice | Tensor | None:
        stays = torch.ones(self.size, dtype=torch.bool)
        for axis, positions in self.parts:
            stays[positions[~axes[axis].kept(keeps[axis])].flatten()] = False
        index = stays.nonzero().flatten()
        if len(index) == self.size:
            return None
        if len(index) and int(index[-1] - index[0]) + 1 == len(index):
            return slice(int(index[0]), int(index[-1]) + 1)
        return index.to(device)


@dataclass(frozen=True, eq=False)
class LayerCuts:
    """Where the blocks lie in the tensors of a layer, by name and dimension, and how many groups it has."""

    tensors: Mapping[str, Mapping[int, Cut]]
    groups: Count | None = None

    def narrowed(self, layer: nn.Module, axes: Sequence[Axis], keeps: Keeps, widths: Sequence[int]) -> Narrowed:
        """The layer's tensors, as far as they are kept."""
        tensors: dict[str, Tensor | None] = {}
        index: slice | Tensor | None = None
        for name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
            for dim, cut in self.tensors.get(name, {}).items():
                assert tensor is not None
                index = cut.index(axes, keeps, tensor.device)
                if isinstance(index, slice):
                    tensor = tensor.narrow(dim, index.start, index.stop - index.start)
                elif index is not None:
                    tensor = tensor.index_select(dim, index)
            tensors[name] = tensor
        return Narrowed(layer, tensors, index, None if self.groups is None else self.groups(widths))


Path = tuple[int | str, ...]
"""Where a size stands among the arguments of a call: `(1, 2)` is `args[1][2]`, a string begins with a keyword."""


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


class Region(nn.Module):
    """A part of a network, as a graph of `torch.nn` layers and torch functions, that can be narrowed along its axes.

    Args:
        body: The graph; its inputs are one value and then the side values that it reads.
        sides: Which side values of the super network these are.
        axes: The axes, in the order of the bundles of its operation; none for a plain edge.
        cuts: Where the blocks lie in the tensors of the layers, by the layer's name in `body`.
        sizes: Sizes among the arguments of calls, by the call's name, that depend on what is kept.
        factors: For calls without weights that multiply (attention), by name, the sizes that their work grows with.
        picks: For arguments of calls, by the call's name, the dimension along which they are narrowed where they are
            read: values that have channels or heads and belong to no layer, such as a position bias.
    """

    def __init__(
        self,
        body: fx.GraphModule,
        sides: Sequence[int] = (),
        axes: Sequence[Axis] = (),
        cuts: Mapping[str, LayerCuts] | None = None,
        sizes: Mapping[str, Mapping[Path, Count]] | None = None,
        factors: Mapping[str, tuple[Count, ...]] | None = None,
        picks: Mapping[str, Mapping[Path, tuple[int, Cut]]] | None = None,
    ) -> None:
        super().__init__()
        self.body = body
        self.sides, self.axes = tuple(sides), tuple(axes)
        self.cuts, self.sizes, self.factors = dict(cuts or {}), dict(sizes or {}), dict(factors or {})
        self.picks = dict(picks or {})
        self._functional: list[fx.GraphModule] = []  # a list, since it shares its layers with `body`

    def forward(self, x: Tensor, *sides: Tensor, keeps: Keeps | None = None) -> Tensor:
        """The output for one input and the side values; with everything kept, the plain layers are called."""
        if keeps is None or all(map(all, keeps)):
            return cast(Tensor, self.body(x, *sides))
        widths = self.widths(keeps)
        states = [cut.narrowed(self.body.get_submodule(n), self.axes, keeps, widths) for n, cut in self.cuts.items()]
        sizes = [count(widths) for where in self.sizes.values() for count in where.values()]
        cuts = (cut for where in self.picks.values() for _, cut in where.values())
        picks = [cut.index(self.axes, keeps, x.device) for cut in cuts]
        if not self._functional:
            self._functional.append(self._make_functional())
        return cast(Tensor, self._functional[0](x, *sides, *states, *sizes, *picks))

    def widths(self, keeps: Keeps) -> list[int]:
        """The number of blocks kept of each axis."""
        return [axis.width(keep) for axis, keep in zip(self.axes, keeps, strict=True)]

    def narrow(self, keeps: Keeps) -> fx.GraphModule:
        """A plain, smaller module with copies of the weights that are kept."""
        widths = self.widths(keeps)
        layers = dict(self.body.named_modules())
        for name, cuts in self.cuts.items():
            layers[name] = shrink(cuts.narrowed(layers[name], self.axes, keeps, widths))
        graph = fx.Graph()
        copied: dict[fx.Node, Any] = {}
        for node in self.body.graph.nodes:
            new = copied[node] = graph.node_copy(node, lambda old: copied[old])
            for path, count in self.sizes.get(node.name, {}).items():
                put(new, path, count(widths))
            for path, (dim, cut) in self.picks.get(node.name, {}).items():
                with graph.inserting_before(new):
                    put(new, path, _parts(graph, argument(new, path), dim, cut.index(self.axes, keeps, _CPU)))
        used = {node.target for node in graph.nodes if node.op == "call_module"}
        holder: dict[str, Any] = {name: layers[name] for name in used}
        holder |= {node.target: attribute(self.body, node.target) for node in graph.nodes if node.op == "get_attr"}
        return fx.GraphModule(holder, graph)

    def movable(self, axis: int) -> bool:
        """Whether the blocks of an axis can be moved: not if they go with a value that belongs to no layer."""
        picks = (cut for picks in self.picks.values() for _, cut in picks.values())
        return not any(where == axis for cut in picks for where, _ in cut.parts)

    def order(self, axis: int, best_first: Tensor) -> None:
        """Moves the blocks of an axis, so that block i is the old block `best_first[i]`; the output stays the same.

        Blocks that cannot be moved stay.
        """
        if not self.movable(axis):
            return
        with torch.no_grad():
            for name, cuts in self.cuts.items():
                layer = self.body.get_submodule(name)
                for tensor_name, dims in cuts.tensors.items():
                    tensor = getattr(layer, tensor_name)
                    for dim, cut in dims.items():
                        for where, positions in cut.parts:
                            if where == axis:
                                moved = tensor.index_select(dim, positions[best_first].flatten().to(tensor.device))
                                tensor.index_copy_(dim, positions.flatten().to(tensor.device), moved)

    def tensor_counts(self, measure: Callable[[Tensor], float]) -> Polynomial:
        """A sum over parameters and buffers, such as their numbers or bytes, for every set of units.

        `measure` is proportional to the number of elements; it may be 0 for those that do not count.
        """
        terms: list[tuple[float, tuple[Count, ...]]] = []
        for name, layer in self.body.named_modules(remove_duplicate=True):
            cuts = self.cuts[name].tensors if name in self.cuts else {}
            for tensor_name, tensor in (*layer._parameters.items(), *layer._buffers.items()):
                if tensor is not None and tensor_name not in layer._non_persistent_buffers_set:
                    counts = [cut.count for cut in cuts.get(tensor_name, {}).values()]
                    terms.append(_term(float(measure(tensor)), counts, self.full_widths))
        return Polynomial(self.axes, tuple(terms))

    def call_counts(self, work: Mapping[str, float]) -> Polynomial:
        """A sum over calls, such as multiply-adds, for every set of units, from the full work of each call (by name).

        The work of a layer grows with the size of its weight, that of attention with its heads.
        """
        terms = []
        for node in self.body.graph.nodes:
            if node.name in work:
                counts = self.factors.get(node.name, ())
                if node.op == "call_module" and node.target in self.cuts:
                    counts = tuple(cut.count for cut in self.cuts[node.target].tensors.get("weight", {}).values())
                terms.append(_term(float(work[node.name]), counts, self.full_widths))
        return Polynomial(self.axes, tuple(terms))

    @property
    def full_widths(self) -> list[int]:
        """The number of blocks of each axis."""
        return [axis.blocks for axis in self.axes]

    @property
    def rewritable(self) -> bool:
        """Whether the output is a tensor of its own that no gradient needs, so that it may be written to."""
        last = self.body.graph.output_node().args[0]
        return (
            isinstance(last, fx.Node)
            and last.op == "call_module"
            and len(last.users) == 1
            and plain_layer(self.body.get_submodule(str(last.target)))
        )

    def _make_functional(self) -> fx.GraphModule:
        """The same graph with the narrowed layers and the sizes as further inputs."""
        graph, copied = fx.Graph(), dict[fx.Node, Any]()
        nodes = list(self.body.graph.nodes)
        for node in nodes:
            if node.op == "placeholder":
                copied[node] = graph.node_copy(node)
        states = {name: graph.placeholder(f"state_{i}") for i, name in enumerate(self.cuts)}
        places = [(name, path) for name, where in self.sizes.items() for path in where]
        sizes = {place: graph.placeholder(f"size_{i}") for i, place in enumerate(places)}
        wanted = [(name, path) for name, where in self.picks.items() for path in where]
        picks = {place: graph.placeholder(f"pick_{i}") for i, place in enumerate(wanted)}
        for node in nodes:
            if node.op == "placeholder":
                continue
            if node.op == "call_module" and node.target in states:
                (x,) = node.args
                copied[node] = graph.call_function(run, (states[node.target], copied[x]))
                continue
            new = copied[node] = graph.node_copy(node, lambda old: copied[old])
            for path in self.sizes.get(node.name, {}):
                put(new, path, sizes[node.name, path])
            for path, (dim, _) in self.picks.get(node.name, {}).items():
                with graph.inserting_before(new):
                    put(new, path, graph.call_function(pick, (argument(new, path), dim, picks[node.name, path])))
        return fx.GraphModule(self.body, graph)


_CPU = torch.device("cpu")


def pick(value: Tensor, dim: int, index: slice | Tensor | None) -> Tensor:
    """The part of a value at these positions of a dimension."""
    if isinstance(index, Tensor):
        return value.index_select(dim, index)
    return value if index is None else value.narrow(dim, index.start, index.stop - index.start)


def _parts(graph: fx.Graph, value: fx.Node, dim: int, index: slice | Tensor | None) -> fx.Node:
    """The same in a graph, as slices."""
    if index is None:
        return value
    places = list(range(index.start, index.stop)) if isinstance(index, slice) else index.tolist()
    starts = [i for i in range(len(places)) if i == 0 or places[i] != places[i - 1] + 1]
    runs = [(places[a], places[b - 1] + 1) for a, b in zip(starts, [*starts[1:], len(places)], strict=True)]
    slices = [graph.call_function(torch.ops.aten.slice.Tensor, (value, dim, start, stop)) for start, stop in runs]
    return slices[0] if len(slices) == 1 else graph.call_function(torch.ops.aten.cat.default, (slices, dim))


def attribute(module: nn.Module, path: str) -> Any:
    """What a dotted name stands for in a module."""
    for part in path.split("."):
        module = getattr(module, part)
    return module


def argument(node: fx.Node, path: Path) -> Any:
    """One of a call's arguments."""
    value: Any = node.kwargs[path[0]] if isinstance(path[0], str) else node.args[path[0]]
    for place in path[1:]:
        value = value[place]
    return value


def put(node: fx.Node, path: Path, value: Any) -> None:
    """Sets one of a call's arguments."""
    first, rest = path[0], path[1:]
    if isinstance(first, str):
        node.update_kwarg(first, _replaced(node.kwargs[first], rest, value))
    else:
        node.update_arg(first, _replaced(node.args[first], rest, value))


def _replaced(old: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    new = list(old)
    new[cast(int, path[0])] = _replaced(old[path[0]], path[1:], value)
    return new


def _term(full: float, counts: Sequence[Count], widths: Sequence[int]) -> tuple[float, tuple[Count, ...]]:
    return full / math.prod(count(widths) for count in counts), tuple(counts)


def plain_layer(module: nn.Module) -> bool:
    """Whether a layer gives a tensor of its own that its gradient does not need."""
    return isinstance(module, nn.modules.conv._ConvNd | nn.modules.batchnorm._BatchNorm | nn.Linear)
