"""The structure of a super network: edges, a validated DAG, and architectures (subsets of its edges)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from budgetnet.errors import UserError
from budgetnet.network.order import edges_at, the_only, topological_order

_Arc = tuple[int | np.ndarray, int]
"""An edge, or the units of a bundle, and the node at its far end."""


@dataclass(frozen=True)
class Edge:
    """A named arrow between two nodes; parallel edges differ by their name.

    Args:
        name: The name, unique in the graph.
        source: The node that it reads.
        target: The node that it is added to.
        fixed: Whether it is always kept: it is never sampled, and every cost counts it.
        bundle: The name of the bundle of which it is a unit. The units of a bundle are parallel edges that run as one
            narrower layer: one call for each distinct set of kept units.
    """

    name: str
    source: str
    target: str
    fixed: bool = False
    bundle: str | None = None


@dataclass(frozen=True)
class Operation:
    """What runs as one call: a plain edge, or one bundle, or a chain of bundles that share their layers.

    `axes` has the edges (indices) of each bundle in the order of the chain; a plain edge is one axis of one edge.
    """

    name: str
    source: int
    target: int
    axes: tuple[tuple[int, ...], ...]
    bundle: bool

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """The edges of all axes."""
        return tuple(edge for axis in self.axes for edge in axis)


class Graph:
    """A directed acyclic graph with one source and one sink, every edge on a path between them.

    Nodes and edges keep the order of insertion; `nodes` is a topological order.

    Args:
        edges: The edges. Those of one bundle lie between the same two nodes.
        chains: Bundles that run as one operation, by name, in order: the nodes between them hold no value.
    """

    def __init__(self, edges: Iterable[Edge], chains: Iterable[Sequence[str]] = ()) -> None:
        self.edges = tuple(edges)
        self.chains = tuple(tuple(chain) for chain in chains)
        _check_names(self.edges)
        self.nodes = topological_order([(edge.source, edge.target) for edge in self.edges])
        self.index = {edge.name: i for i, edge in enumerate(self.edges)}
        node_index = {node: i for i, node in enumerate(self.nodes)}
        self.sources = tuple(node_index[edge.source] for edge in self.edges)
        self.targets = tuple(node_index[edge.target] for edge in self.edges)
        self.incoming = edges_at(self.targets, len(self.nodes))
        self.outgoing = edges_at(self.sources, len(self.nodes))
        self.source = the_only("source", "incoming", self.nodes, self.incoming)
        self.sink = the_only("sink", "outgoing", self.nodes, self.outgoing)
        self.fixed = torch.tensor([edge.fixed for edge in self.edges], device="cpu")  # also within torch.device(…)
        self.bundles = _bundles(self.edges)
        self.operations = _operations(self)
        self._arcs_in, self._arcs_out = self._arcs(self.targets, self.sources), self._arcs(self.sources, self.targets)

    @cached_property
    def fingerprint(self) -> str:
        """Tells graphs apart in files: equal for equal edges in equal order."""
        edges: list[object] = [[e.name, e.source, e.target] for e in self.edges]
        if self.bundles or bool(self.fixed.any()):
            edges = [*edges, [[e.fixed, e.bundle] for e in self.edges], self.chains]
        text = json.dumps(edges)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.edges == other.edges and self.chains == other.chains

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} nodes, {len(self.edges)} edges, {self.source!r} to {self.sink!r})"

    @cached_property
    def full(self) -> Architecture:
        """Every edge."""
        return Architecture(self, frozenset(self.index))

    def reached(self, gates: Tensor) -> Tensor:
        """Which nodes the source reaches over kept edges.

        Args:
            gates: Architectures (n × edges, bool).

        Returns:
            n × nodes (bool).
        """
        return self._spread(gates, range(len(self.nodes)), self._arcs_in)

    def reaching(self, gates: Tensor) -> Tensor:
        """Which nodes reach the sink over kept edges.

        Args:
            gates: Architectures (n × edges, bool).

        Returns:
            n × nodes (bool).
        """
        return self._spread(gates, range(len(self.nodes) - 1, -1, -1), self._arcs_out)

    def _spread(self, gates: Tensor, order: Sequence[int], arcs: Sequence[Sequence[_Arc]]) -> Tensor:
        kept = (gates.cpu() | self.fixed).numpy().T.copy()
        reach = np.zeros((len(self.nodes), len(gates)), bool)
        reach[order[0]] = True
        for node in order[1:]:
            row = reach[node]
            for edges, far in arcs[node]:
                row |= (kept[edges] if isinstance(edges, int) else kept[edges].any(0)) & reach[far]
        return torch.from_numpy(reach.T.copy())

    def _arcs(self, near: Sequence[int], far: Sequence[int]) -> list[list[_Arc]]:
        """For each node, the edges at its near side and where they lead; the units of a bundle are taken together."""
        arcs: list[list[_Arc]] = [[] for _ in self.nodes]
        for i, edge in enumerate(self.edges):
            if edge.bundle is None:
                arcs[near[i]].append((i, far[i]))
        for units in self.bundles.values():
            arcs[near[units[0]]].append((np.asarray(units), far[units[0]]))
        return arcs

    def live(self, gates: Tensor) -> Tensor:
        """The kept edges, fixed ones too, that lie on a path from source to sink.

        Args:
            gates: Architectures (n × edges, bool).

        Returns:
            n × edges (bool).
        """
        gates = gates.cpu() | self.fixed
        return gates & self.reached(gates)[:, self.sources] & self.reaching(gates)[:, self.targets]

    def shortest_path(self, weights: Sequence[float]) -> list[int]:
        """A path from source to sink of least weight.

        Args:
            weights: Of each edge.

        Returns:
            The numbers of its edges, in order.
        """
        best = [math.inf] * len(self.nodes)
        best[0] = 0.0
        arrival = [-1] * len(self.nodes)
        for node, incoming in enumerate(self.incoming):
            for edge in incoming:
                weight = best[self.sources[edge]] + weights[edge]
                if weight < best[node] or arrival[node] < 0:
                    best[node], arrival[node] = weight, edge
        path: list[int] = []
        node = len(self.nodes) - 1
        while node:
            path.append(arrival[node])
            node = self.sources[arrival[node]]
        return path[::-1]

    def ears(self, live: Tensor, edges: Sequence[int], weights: Sequence[float]) -> list[list[int]]:
        """Each edge with the lightest, then fewest, other edges that tie it to a live architecture.

        Args:
            live: A row of gates (edges, bool).
            edges: The numbers of the edges.
            weights: Of each edge of the graph.

        Returns:
            For each of the edges, the numbers of it and of those that tie it, in order.
        """
        touched, places = {0, len(self.nodes) - 1}, range(len(self.nodes))
        for i in live.nonzero().flatten().tolist():
            touched |= {self.sources[i], self.targets[i]}

        @cache  # the units of a bundle have the same ends
        def before(node: int) -> list[int]:
            return self._walk(node, touched, weights, self.incoming, self.sources, places)

        @cache
        def after(node: int) -> list[int]:
            return self._walk(node, touched, weights, self.outgoing, self.targets, places[::-1])

        return [[*before(self.sources[edge]), edge, *after(self.targets[edge])] for edge in edges]

    @staticmethod
    def _walk(
        node: int,
        touched: set[int],
        weights: Sequence[float],
        near: Sequence[Sequence[int]],
        far_end: Sequence[int],
        order: Sequence[int],
    ) -> list[int]:
        """The lightest way from a node to one of the touched ones, over the edges on its `near` side.

        Of several, the shortest: edges of a cost that is not a sum often weigh nothing.
        """
        if node in touched:
            return []
        best: dict[int, tuple[float, int, int]] = {}
        for place in order:
            if place in touched or not near[place]:
                best[place] = (0.0, 0, -1)
            else:
                ways = ((*best[far_end[e]][:2], e) for e in near[place])
                best[place] = min((weight + weights[e], length + 1, e) for weight, length, e in ways)
            if place == node:
                break
        way: list[int] = []
        while node not in touched:
            way.append(best[node][2])
            node = far_end[way[-1]]
        return way

    def architecture(self, gates: Tensor) -> Architecture:
        """An architecture.

        Args:
            gates: One row of gates (edges, bool).

        Returns:
            The architecture that keeps the edges whose gate is set.
        """
        return Architecture(self, frozenset(self.edges[i].name for i in gates.nonzero().flatten().tolist()))


@dataclass(frozen=True)
class Architecture:
    """A value: the edges of a graph that are kept. Iterates over them in the graph's order.

    Args:
        graph: The graph of the super network.
        kept: The names of the edges that are kept.
    """

    graph: Graph
    kept: frozenset[str]

    def __post_init__(self) -> None:
        unknown = sorted(self.kept - self.graph.index.keys())
        if unknown:
            raise UserError(
                f"the architecture keeps {unknown[0]!r}, which is not an edge of this super network "
                f"(it has {len(self.graph.edges)}, such as {self.graph.edges[0].name!r}); "
                "use the super network that the architecture was made for"
            )

    def __iter__(self) -> Iterator[Edge]:
        return (edge for edge in self.graph.edges if edge.name in self.kept)

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, name: object) -> bool:
        return name in self.kept

    def __hash__(self) -> int:
        return hash(self.kept)

    def __repr__(self) -> str:
        return f"Architecture({len(self.kept)} of {len(self.graph.edges)} edges)"

    def gates(self) -> Tensor:
        """One row of gates (edges, bool)."""
        return torch.tensor([edge.name in self.kept for edge in self.graph.edges])

    def live(self) -> Architecture:
        """The kept edges on a path from source to sink: what is computed. Empty if the sink is not reached."""
        return self.graph.architecture(self.graph.live(self.gates()[None])[0])

    @property
    def connected(self) -> bool:
        """Whether the source reaches the sink."""
        return bool(self.live())

    def to_json(self) -> str:
        """Text that `from_json` reads back, with the graph's fingerprint."""
        return json.dumps({"graph": self.graph.fingerprint, "kept": [edge.name for edge in self]}, indent=1)

    @staticmethod
    def from_json(graph: Graph, text: str) -> Architecture:
        """Reads the text of `to_json`.

        Args:
            graph: The graph that the architecture was made for; another one is refused.
            text: JSON.

        Returns:
            The architecture.
        """
        try:
            value = json.loads(text)
            made_for, kept = value["graph"], value["kept"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                'an architecture file holds JSON such as {"graph": "…", "kept": ["edge", …]}; '
                f"this one could not be read ({type(error).__name__}: {error}): write it with Architecture.to_json()"
            ) from None
        if not isinstance(kept, list) or not all(isinstance(name, str) for name in kept):
            raise UserError(f'in an architecture file, "kept" is a list of edge names, not {kept!r:.60}; correct it')
        if made_for != graph.fingerprint:
            raise UserError(
                f"the architecture was made for the graph {made_for!r:.40}, this super network is "
                f"{graph.fingerprint!r}; give the space and the parameters that it was made with"
            )
        return Architecture(graph, frozenset(kept))


def _check_names(edges: Sequence[Edge]) -> None:
    if not edges:
        raise UserError("a graph needs at least one edge; none was given")
    seen: set[str] = set()
    for edge in edges:
        if edge.name in seen:
            raise UserError(f"two edges are named {edge.name!r}; give each edge, parallel ones too, a name of its own")
        seen.add(edge.name)


def _bundles(edges: Sequence[Edge]) -> dict[str, tuple[int, ...]]:
    """The units (edges) of every bundle, in the order of insertion."""
    found: dict[str, list[int]] = {}
    for i, edge in enumerate(edges):
        if edge.bundle is None:
            continue
        units = found.setdefault(edge.bundle, [])
        units.append(i)
        first = edges[units[0]]
        if edge.fixed or (edge.source, edge.target) != (first.source, first.target):
            raise UserError(
                f"edge {edge.name!r} cannot be a unit of the bundle {edge.bundle!r}: units are not fixed and lie "
                f"between the same nodes, here {first.source!r} and {first.target!r}; correct the edge"
            )
    return {name: tuple(units) for name, units in found.items()}


def _operations(graph: Graph) -> tuple[Operation, ...]:
    """What runs as one call, in the order of its first edge."""
    chained = {name: chain for chain in graph.chains for name in chain}
    unknown = sorted(set(chained) - set(graph.bundles))
    if unknown:
        raise UserError(f"a chain names {unknown[0]!r}, which is not a bundle of the graph; correct the chain")
    operations, done = [], set[str]()
    for i, edge in enumerate(graph.edges):
        if edge.bundle is None:
            operations.append(Operation(edge.name, graph.sources[i], graph.targets[i], ((i,),), bundle=False))
        elif edge.bundle not in done:
            names = chained.get(edge.bundle, (edge.bundle,))
            done.update(names)
            axes = tuple(graph.bundles[name] for name in names)
            _check_chain(graph, names, axes)
            first, last = axes[0][0], axes[-1][0]
            operations.append(Operation(names[0], graph.sources[first], graph.targets[last], axes, bundle=True))
    return tuple(operations)


def _check_chain(graph: Graph, names: Sequence[str], axes: Sequence[Sequence[int]]) -> None:
    for name, units, following in zip(names, axes, axes[1:], strict=False):
        node = graph.targets[units[0]]
        if graph.incoming[node] != tuple(units) or graph.outgoing[node] != tuple(following):
            raise UserError(
                f"the bundle {name!r} cannot run as one with the next of its chain: the node "
                f"{graph.nodes[node]!r} between them has other edges; leave the chain out"
            )
