"""Any graph, in layers from left to right: longest paths, barycentres, and way points for long edges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from budgetnet.network.graph import Graph
from budgetnet.pictures.draw.geometry import Point, flow
from budgetnet.pictures.draw.layout import PLAIN, RADIUS, Layout, Node, Route, lanes
from budgetnet.pictures.outline import Drawable

LONGEST_LABEL = 16
SWEEPS = 8
ROW = 58.0
WAY_POINT_ROW = 34.0
LANE = 16.0
"""Pixels between parallel edges."""

Stop = int | tuple[int, int]
"""A node, or where an edge passes a layer: (edge, layer)."""


def layers(net: Drawable) -> Layout:
    """A layered picture of any graph."""
    graph = net.graph
    depth = _depths(graph)
    first = {unit: units[0] for units in graph.bundles.values() for unit in units}
    chains = [_chain(graph, first.get(edge, edge), depth) for edge in range(len(graph.edges))]
    different = [chain for edge, chain in enumerate(chains) if first.get(edge, edge) == edge]
    columns = _columns(different, depth)
    _untangle(columns, different)
    labels = [_shorten(node) for node in graph.nodes]
    xs = _column_places(columns, labels)
    ys = {stop: y for column in columns for stop, y in zip(column, _row_places(column), strict=True)}
    top = 56 - min(ys.values())
    nodes = {
        name: Node(Point(xs[depth[i]], ys[i] + top), labels[i], _half_width(labels[i]))
        for i, name in enumerate(graph.nodes)
    }
    stops = {stop: Point(xs[depth[stop] if isinstance(stop, int) else stop[1]], y + top) for stop, y in ys.items()}
    halves = [_half_width(label) for label in labels]
    offsets = lanes(graph, LANE)
    routes = tuple(_route(chain, stops, halves, offset) for chain, offset in zip(chains, offsets, strict=True))
    width = xs[-1] + halves[-1] + 84
    meaning = "edge; units of a layer side by side" if graph.bundles else "edge"
    return Layout(nodes, routes, {PLAIN: meaning}, (), width, max(ys.values()) + top + 44)


def _depths(graph: Graph) -> list[int]:
    depth = [0] * len(graph.nodes)
    for node, incoming in enumerate(graph.incoming):
        depth[node] = max((depth[graph.sources[edge]] + 1 for edge in incoming), default=0)
    return depth


def _chain(graph: Graph, edge: int, depth: Sequence[int]) -> list[Stop]:
    source, target = graph.sources[edge], graph.targets[edge]
    return [source, *((edge, layer) for layer in range(depth[source] + 1, depth[target])), target]


def _columns(chains: Iterable[list[Stop]], depth: Sequence[int]) -> list[list[Stop]]:
    columns: list[list[Stop]] = [[] for _ in range(max(depth) + 1)]
    for node, layer in enumerate(depth):
        columns[layer].append(node)
    for chain in chains:
        for stop in chain[1:-1]:
            assert isinstance(stop, tuple)
            columns[stop[1]].append(stop)
    return columns


def _untangle(columns: list[list[Stop]], chains: Iterable[list[Stop]]) -> None:
    """Orders each column by the mean place of its neighbours, back and forth: fewer crossings."""
    before: dict[Stop, list[Stop]] = {stop: [] for column in columns for stop in column}
    after: dict[Stop, list[Stop]] = {stop: [] for column in columns for stop in column}
    for chain in chains:
        for here, there in pairwise(chain):
            after[here].append(there)
            before[there].append(here)
    for sweep in range(SWEEPS):
        near, order = (before, columns) if sweep % 2 == 0 else (after, columns[::-1])
        place: dict[Stop, float] = {}
        for column in order:
            middle = (len(column) - 1) / 2
            weight = {
                stop: sum(place[n] for n in near[stop]) / len(near[stop]) if near[stop] and place else i - middle
                for i, stop in enumerate(column)
            }
            column.sort(key=weight.__getitem__)
            place.update({stop: i - middle for i, stop in enumerate(column)})


def _row_places(column: Sequence[Stop]) -> list[float]:
    """Heights around zero; way points need less room than nodes."""
    ys = [0.0]
    for above, here in pairwise(column):
        ys.append(ys[-1] + (ROW if isinstance(above, int) and isinstance(here, int) else WAY_POINT_ROW + 6))
    return [y - ys[-1] / 2 for y in ys]


def _column_places(columns: Sequence[Sequence[Stop]], labels: Sequence[str]) -> list[float]:
    halves = [max((_half_width(labels[s]) for s in column if isinstance(s, int)), default=0.0) for column in columns]
    xs = [84.0 + halves[0]]
    for left, right in pairwise(halves):
        xs.append(xs[-1] + left + right + 84)
    return xs


def _route(chain: Sequence[Stop], stops: dict[Stop, Point], halves: Sequence[float], offset: float) -> Route:
    source, target = chain[0], chain[-1]
    assert isinstance(source, int)
    assert isinstance(target, int)
    inner = [Point(stops[stop].x, stops[stop].y - offset) for stop in chain[1:-1]]
    start, end = stops[source], stops[target]
    start, end = Point(start.x + halves[source] + 2, start.y), Point(end.x - halves[target] - 2.5, end.y)
    if not inner and offset:
        first, *handles, last = flow([start, end])
        return Route((first, *(Point(handle.x, handle.y - offset * 4 / 3) for handle in handles), last))
    return Route(flow([start, *inner, end]))


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"


def _half_width(label: str) -> float:
    return max(RADIUS, 3.4 * len(label) + 8)
