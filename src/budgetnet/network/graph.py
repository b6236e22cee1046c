"""The structure of a super network: edges, a validated DAG, and architectures (subsets of its edges)."""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from budgetnet.errors import UserError


@dataclass(frozen=True)
class Edge:
    """A named arrow between two nodes; parallel edges differ by their name."""

    name: str
    source: str
    target: str


class Graph:
    """A directed acyclic graph with one source and one sink, every edge on a path between them.

    Nodes and edges keep the order of insertion; `nodes` is a topological order.
    """

    def __init__(self, edges: Iterable[Edge]) -> None:
        self.edges = tuple(edges)
        _check_names(self.edges)
        self.nodes = _topological_order(self.edges)
        self.index = {edge.name: i for i, edge in enumerate(self.edges)}
        node_index = {node: i for i, node in enumerate(self.nodes)}
        self.sources = tuple(node_index[edge.source] for edge in self.edges)
        self.targets = tuple(node_index[edge.target] for edge in self.edges)
        self.incoming = _group(self.targets, len(self.nodes))
        self.outgoing = _group(self.sources, len(self.nodes))
        self.source = _the_only("source", "incoming", self.nodes, self.incoming)
        self.sink = _the_only("sink", "outgoing", self.nodes, self.outgoing)

    @cached_property
    def fingerprint(self) -> str:
        """Tells graphs apart in files: equal for equal edges in equal order."""
        text = json.dumps([[e.name, e.source, e.target] for e in self.edges])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.edges == other.edges

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} nodes, {len(self.edges)} edges, {self.source!r} to {self.sink!r})"

    @cached_property
    def full(self) -> Architecture:
        """Every edge."""
        return Architecture(self, frozenset(self.index))

    def reached(self, gates: Tensor) -> Tensor:
        """For gates (n × edges, bool): which nodes (n × nodes) the source reaches over kept edges."""
        return self._spread(gates, range(len(self.nodes)), self.incoming, self.sources)

    def reaching(self, gates: Tensor) -> Tensor:
        """For gates (n × edges, bool): which nodes (n × nodes) reach the sink over kept edges."""
        return self._spread(gates, range(len(self.nodes) - 1, -1, -1), self.outgoing, self.targets)

    def _spread(
        self, gates: Tensor, order: Sequence[int], near: Sequence[Sequence[int]], far_end: Sequence[int]
    ) -> Tensor:
        kept = gates.cpu().numpy().T.copy()
        reach = np.zeros((len(self.nodes), len(gates)), bool)
        reach[order[0]] = True
        for node in order[1:]:
            row = reach[node]
            for edge in near[node]:
                row |= kept[edge] & reach[far_end[edge]]
        return torch.from_numpy(reach.T.copy())

    def live(self, gates: Tensor) -> Tensor:
        """For gates (n × edges, bool): the kept edges that lie on a path from source to sink."""
        gates = gates.cpu()
        return gates & self.reached(gates)[:, self.sources] & self.reaching(gates)[:, self.targets]

    def shortest_path(self, weights: Sequence[float]) -> list[int]:
        """The edges (indices) of a source→sink path of least weight."""
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

    def ear(self, live: Tensor, edge: int, weights: Sequence[float]) -> list[int]:
        """The edge and the lightest, then fewest, other edges that tie it to a live architecture (a row of gates)."""
        touched = {0, len(self.nodes) - 1}
        for i in live.nonzero().flatten().tolist():
            touched |= {self.sources[i], self.targets[i]}
        before = self._walk(self.sources[edge], touched, weights, self.incoming, self.sources, range(len(self.nodes)))
        backwards = range(len(self.nodes) - 1, -1, -1)
        after = self._walk(self.targets[edge], touched, weights, self.outgoing, self.targets, backwards)
        return [*before, edge, *after]

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
        """The architecture of one row of gates (edges, bool)."""
        return Architecture(self, frozenset(self.edges[i].name for i in gates.nonzero().flatten().tolist()))


@dataclass(frozen=True)
class Architecture:
    """A value: the edges of a graph that are kept. Iterates over them in the graph's order."""

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
        """An architecture of this graph from `to_json`'s text; another graph's is refused."""
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


def _topological_order(edges: Sequence[Edge]) -> tuple[str, ...]:
    """Kahn's algorithm; nodes that are free at the same time come in order of insertion."""
    nodes = dict.fromkeys(node for edge in edges for node in (edge.source, edge.target))
    waiting = dict.fromkeys(nodes, 0)
    followers: dict[str, list[str]] = {node: [] for node in nodes}
    for edge in edges:
        waiting[edge.target] += 1
        followers[edge.source].append(edge.target)
    free = deque(node for node in nodes if waiting[node] == 0)
    order: list[str] = []
    while free:
        node = free.popleft()
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                free.append(follower)
    if len(order) < len(nodes):
        raise UserError(f"the graph has a cycle: {_cycle(edges, set(nodes) - set(order))}; remove one of these edges")
    return tuple(order)


def _cycle(edges: Sequence[Edge], unordered: set[str]) -> str:
    """Walks backwards among nodes that wait for each other until one repeats: a cycle, as text."""
    before = {edge.target: edge.source for edge in edges if edge.source in unordered and edge.target in unordered}
    walk = [next(iter(sorted(before)))]
    while walk[-1] not in walk[:-1]:
        walk.append(before[walk[-1]])
    return " → ".join(repr(node) for node in reversed(walk[walk.index(walk[-1]) :]))


def _group(ends: Sequence[int], count: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = [[] for _ in range(count)]
    for edge, node in enumerate(ends):
        groups[node].append(edge)
    return tuple(tuple(group) for group in groups)


def _the_only(role: str, missing: str, nodes: Sequence[str], edges: Sequence[Sequence[int]]) -> str:
    """In a DAG every edge lies on a source→sink path exactly when there is one source and one sink."""
    found = [node for node, group in zip(nodes, edges, strict=True) if not group]
    if len(found) != 1:
        raise UserError(
            f"a graph has one {role}, this one has {len(found)}: {', '.join(map(repr, found))} have no {missing} edge, "
            f"so an edge at all but one of them is on no path; connect them or leave them out"
        )
    return found[0]
