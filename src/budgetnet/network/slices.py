"""`Region`: a part of a network with one input and one output whose hidden channels or heads can be kept in part.

An axis is a set of interchangeable blocks of channels (single channels, heads, key/value groups) that some layers make
and others read. Its units are runs of blocks; each is an edge of the graph, and the units of an axis are a bundle.
A region runs with narrowed weights: what is not kept is not computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, fx, nn

from budgetnet.network.axes import REMEMBERED, Axis, Count, Cut, Keeps, LayerCuts, Polynomial
from budgetnet.network.layers import Choice, Places, Scattered, channels_last, narrowed, pick, run, shrink

Path = tuple[int | str, ...]
"""Where a size stands among the arguments of a call: `(1, 2)` is `args[1][2]`, a string begins with a keyword."""


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
        self._known: dict[tuple[Keeps, torch.device], _Chosen] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functional": [], "_known": {}}

    def forward(
        self, x: Tensor, *sides: Tensor, keeps: Keeps | None = None, small: Sequence[Any] | None = None
    ) -> Tensor:
        """The output for one input and the side values; with everything kept, the plain layers are called.

        `small` is one of what `narrowed` gave for these units, if it was called for several sets of them.
        """
        if keeps is None or all(map(all, keeps)):
            return cast(Tensor, self.body(x, *sides))
        if not self._functional:
            self._functional.append(self._make_functional())
        return cast(Tensor, self._functional[0](x, *sides, *(small or self.narrowed([keeps], x)[0])))

    def narrowed(self, choices: Sequence[Keeps], x: Tensor) -> list[list[Any]]:
        """The narrowed layers, sizes and picks for each of some choices: their parameters have one gradient for all.

        `x` is what they are for: weights of convolutions are laid out as it is.
        """
        chosen = [self._choose(keeps, x.device) for keeps in choices]
        last = channels_last(x)
        layers = [
            narrowed(self.body.get_submodule(name), [choice.layers[i] for choice in chosen], last)
            for i, name in enumerate(self.cuts)
        ]
        return [[*states, *choice.rest] for *states, choice in zip(*layers, chosen, strict=True)]

    def _choose(self, keeps: Keeps, device: torch.device) -> _Chosen:
        """What stays for one choice, remembered."""
        found = self._known.get((keeps, device))
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            layers = [cuts.choice(self.axes, keeps, device) for cuts in self.cuts.values()]
            widths = self.widths(keeps)
            sizes = [count(widths) for where in self.sizes.values() for count in where.values()]
            cuts = (cut for where in self.picks.values() for _, cut in where.values())
            picks = [cut.index(self.axes, keeps, device) for cut in cuts]
            found = self._known[keeps, device] = _Chosen(layers, [*sizes, *picks])
        return found

    def widths(self, keeps: Keeps) -> list[int]:
        """The number of blocks kept of each axis."""
        return [axis.width(keep) for axis, keep in zip(self.axes, keeps, strict=True)]

    def narrow(self, keeps: Keeps) -> fx.GraphModule:
        """A plain, smaller module with copies of the weights that are kept."""
        widths = self.widths(keeps)
        layers = dict(self.body.named_modules())
        for name, cuts in self.cuts.items():
            device = next(tensor.device for tensor in layers[name].state_dict().values())
            layers[name] = shrink(layers[name], cuts.choice(self.axes, keeps, device))
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


class _Chosen(NamedTuple):
    """What stays of each layer that is cut, and the sizes and picks."""

    layers: list[Choice]
    rest: list[Any]


def _parts(graph: fx.Graph, value: fx.Node, dim: int, places: Places) -> fx.Node:
    """The part of a value at these positions, in a graph, as slices."""
    if places is None:
        return value
    runs = places.runs if isinstance(places, Scattered) else [(places.start, places.stop)]
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
