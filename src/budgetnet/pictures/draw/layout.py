"""Where the nodes and edges of a super network go on the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from budgetnet.network.graph import Graph
from budgetnet.pictures.draw.geometry import Curve, Point

RADIUS = 12.0
"""Half the height of a node."""

UNIT = 2.6
"""Pixels between the units of a bundle, which are drawn as a band: what is kept of it is as wide as its share."""

PLAIN = "plain"
"""The kind of an edge about which the layout knows nothing more."""


@dataclass(frozen=True)
class Node:
    """A node's centre, its label, and half of its width; one as wide as it is high is a circle."""

    at: Point
    label: str
    half_width: float = RADIUS


@dataclass(frozen=True)
class Route:
    """The curve of an edge and its kind, which decides the colour."""

    curve: Curve
    kind: str = PLAIN


@dataclass(frozen=True)
class Caption:
    """A text beside the graph; `anchor` is SVG's text-anchor."""

    at: Point
    text: str
    anchor: str = "start"


@dataclass(frozen=True)
class Layout:
    """A whole picture: nodes by name, routes in the order of the graph's edges, kinds of edges with their meaning."""

    nodes: Mapping[str, Node]
    routes: tuple[Route, ...]
    kinds: Mapping[str, str]
    captions: tuple[Caption, ...] = ()
    width: float = 0.0
    height: float = 0.0

    @property
    def positions(self) -> dict[str, Point]:
        """The centre of each node."""
        return {name: node.at for name, node in self.nodes.items()}


def parallels(graph: Graph) -> list[tuple[int, int]]:
    """For each edge: its place among the edges that join the same two nodes, and how many these are."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for edge, ends in enumerate(zip(graph.sources, graph.targets, strict=True)):
        groups[ends].append(edge)
    places = [(0, 1)] * len(graph.edges)
    for members in groups.values():
        for place, edge in enumerate(members):
            places[edge] = (place, len(members))
    return places


def lanes(graph: Graph, gap: float) -> list[float]:
    """How far each edge lies to the left of the middle between its nodes.

    Parallel edges are a gap apart; the units of a bundle lie side by side, as one band as wide as all of them.
    """
    offsets = [0.0] * len(graph.edges)
    groups: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    units = {members[0]: list(members) for members in graph.bundles.values()}
    for edge, ends in enumerate(zip(graph.sources, graph.targets, strict=True)):
        if graph.edges[edge].bundle is None or edge in units:
            groups[ends].append(units.get(edge, [edge]))
    for members in groups.values():
        total = sum((len(lane) - 1) * UNIT for lane in members) + (len(members) - 1) * gap
        here = total / 2
        for lane in members:
            for edge in lane:
                offsets[edge] = here
                here -= UNIT
            here += UNIT - gap
    return offsets


def fan(place: int, count: int, gap: float) -> float:
    """How far a parallel edge lies to the left of the middle."""
    return ((count - 1) / 2 - place) * gap


def shape_text(shape: Sequence[int]) -> str:
    """`16×32×32`."""
    return "×".join(map(str, shape))
