"""A super network, an architecture or a distribution over architectures as SVG text."""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup

from budgetnet.costs.units import show
from budgetnet.pictures.draw.geometry import Point, arrow, path
from budgetnet.pictures.draw.layout import RADIUS, UNIT, Node
from budgetnet.pictures.draw.legend import legend
from budgetnet.pictures.draw.picture import Picture, describe
from budgetnet.pictures.draw.text import escaped
from budgetnet.pictures.draw.theme import ramp, stylesheet

TITLE_HEIGHT = 58.0
NARROWEST = 480.0


def svg(picture: Picture, theme: str = "auto", style: bool = True) -> str:
    """The picture as one SVG element; a page that carries `stylesheet()` and the keys itself says style=False."""
    place = picture.layout
    head = TITLE_HEIGHT if picture.title else 0.0
    width, height = size(picture, key=style)
    key = legend(picture, width)[0] if style else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bn" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" aria-label="{escaped(describe(picture))}">',
        f"<style>{stylesheet(theme)}</style>" if style else "",
        f'<rect class="page" width="{width:g}" height="{height:g}"/>',
        f'<text class="title" x="14" y="28">{escaped(picture.title)}</text>' if picture.title else "",
        f'<text class="caption" x="14" y="47">{escaped(describe(picture))}</text>' if picture.title else "",
        f'<g transform="translate(0 {head:g})">',
        *(
            f'<text class="caption" x="{c.at.x:g}" y="{c.at.y:g}" text-anchor="{c.anchor}">{escaped(c.text)}</text>'
            for c in place.captions
        ),
        *_edges(picture),
        *_ends(picture),
        *_nodes(picture),
        f'<g transform="translate(0 {place.height:g})">{key}</g></g></svg>',
    ]
    return "\n".join(part for part in parts if part)


def size(picture: Picture, key: bool = True) -> tuple[float, float]:
    """The width and height of the picture, with its key or without it, in pixels."""
    head = TITLE_HEIGHT if picture.title else 0.0
    text = 6.6 * max(len(describe(picture)), 1.5 * len(picture.title)) + 28 if picture.title else 0.0
    width = max(picture.layout.width, text, NARROWEST if key else 0.0)
    return width, head + picture.layout.height + (legend(picture, width)[1] if key else 0.0)


def widths(picture: Picture) -> list[float]:
    """A line width for each edge: its area, not its width, follows the cost, so that cheap edges stay visible."""
    costs, edges = picture.costs, picture.net.graph.edges
    if costs is None:
        found = [2.2] * len(edges)
    else:
        largest = max(costs) or 1.0
        spread = 3.7 if len(set(costs)) > 2 else 1.9
        found = [1.3 + spread * math.sqrt(cost / largest) for cost in costs]
    # the units of a bundle lie side by side: together they are as wide as what is kept of it
    return [width if edge.bundle is None else UNIT for width, edge in zip(found, edges, strict=True)]


def _edges(picture: Picture) -> Iterator[str]:
    """Dropped edges first, so that kept ones lie above them."""
    order = sorted(range(len(picture.net.graph.edges)), key=lambda i: picture.net.graph.edges[i].name in picture.live)
    blocks = _partners(picture)
    line_widths = widths(picture)
    for i in order:
        yield _edge(picture, i, line_widths[i], blocks.get(i))


def _edge(picture: Picture, i: int, width: float, block: int | None) -> str:
    route, live = picture.layout.routes[i], picture.live
    edges = picture.net.graph.edges
    kept = edges[i].name in live
    alone = kept and block is not None and edges[block].name not in live
    classes = f"edge {route.kind}{'' if kept else ' dropped'}{' alone' if alone else ''}"
    attributes = "".join(f' data-{key}="{escaped(value)}"' for key, value in _edge_data(picture, i, block).items())
    if picture.probabilities is not None:
        attributes += f' opacity="{0.3 + 0.7 * picture.probabilities[i]:.2f}"'
    tick = picture.ticks.edges[i] if picture.ticks else 0
    stroke, fill = _tick_paint(picture, tick) if tick else ("", "")
    shaft, head = arrow(route.curve, 6 + 1.1 * width)
    return (
        f'<g class="{classes}"{attributes}><title>{edge_title(picture, i)}</title>'
        f'<path class="hit" d="{path(route.curve)}"/>'
        f'<path class="line" d="{path(shaft)}" stroke-width="{width:.1f}"{stroke}/>'
        f'<path class="head" d="{head}"{fill}/></g>'
    )


def _edge_data(picture: Picture, i: int, block: int | None) -> dict[str, object]:
    """What a page's script needs: the edge's name and ends, its numbers, and the block beside a skip."""
    graph = picture.net.graph
    data: dict[str, object] = {
        "index": i,
        "name": graph.edges[i].name,
        "source": graph.sources[i],
        "target": graph.targets[i],
    }
    if picture.costs is not None and picture.cost is not None:
        data["cost"] = show(picture.costs[i], picture.cost.unit)
    if picture.probabilities is not None:
        data["probability"] = f"{picture.probabilities[i]:.3g}"
    if block is not None:
        data["block"] = block
    if picture.ticks and picture.ticks.edges[i]:
        data["tick"] = picture.ticks.edges[i]
    return data


def edge_title(picture: Picture, i: int) -> Markup:
    """What hovering over an edge says."""
    edge = picture.net.graph.edges[i]
    lines = [edge.name, f"{edge.source} → {edge.target}, {'kept' if edge.name in picture.live else 'dropped'}"]
    if picture.costs is not None and picture.cost is not None:
        lines.append(f"{picture.cost.name}: {show(picture.costs[i], picture.cost.unit)}")
    if picture.probabilities is not None:
        lines.append(f"probability: {picture.probabilities[i]:.3g}")
    if picture.ticks and picture.ticks.edges[i]:
        lines.append(f"tick {picture.ticks.edges[i]} of {picture.ticks.total}")
    return escaped("\n".join(lines))


def _tick_paint(picture: Picture, tick: int) -> tuple[str, str]:
    assert picture.ticks is not None
    colour = ramp((tick - 1) / max(picture.ticks.total - 1, 1))
    return f' style="stroke:{colour}"', f' style="fill:{colour}"'


def _partners(picture: Picture) -> dict[int, int]:
    """For each skip: the block beside it. A skip without its block is dashed."""
    graph, routes = picture.net.graph, picture.layout.routes
    blocks = {(graph.sources[i], graph.targets[i]): i for i, route in enumerate(routes) if route.kind == "block"}
    return {
        i: blocks[ends]
        for i, route in enumerate(routes)
        if route.kind == "skip" and (ends := (graph.sources[i], graph.targets[i])) in blocks
    }


def _nodes(picture: Picture) -> Iterator[str]:
    graph, shapes = picture.net.graph, picture.net.shapes.nodes
    alive = {node for edge in graph.edges if edge.name in picture.live for node in (edge.source, edge.target)}
    for i, name in enumerate(graph.nodes):
        node = picture.layout.nodes[name]
        tick = picture.ticks.nodes[i] if picture.ticks else 0
        paint = _tick_paint(picture, tick)[0] if tick else ""
        shape = "×".join(map(str, shapes[i]))
        yield (
            f'<g class="node{"" if name in alive else " dead"}" data-node="{i}"><title>{escaped(name)}\n{shape}</title>'
            f'<rect x="{node.at.x - node.half_width:g}" y="{node.at.y - RADIUS:g}" width="{2 * node.half_width:g}" '
            f'height="{2 * RADIUS:g}" rx="{RADIUS:g}"{paint}/>'
            f'<text class="label" x="{node.at.x:g}" y="{node.at.y + 3.7:g}">{escaped(node.label)}</text></g>'
        )


def _ends(picture: Picture) -> Iterator[str]:
    """Arrows into the source and out of the sink, on the side where no edge arrives."""
    graph, nodes = picture.net.graph, picture.layout.nodes
    source, sink = nodes[graph.source], nodes[graph.sink]
    before = [nodes[graph.edges[e].source].at.x for e in graph.incoming[-1]]
    side = -1 if min(before) > sink.at.x - 1 and max(before) > sink.at.x else 1
    yield from _end(source, -1, "input", inwards=True)
    yield from _end(sink, side, "output", inwards=False)


def _end(node: Node, side: int, text: str, inwards: bool) -> Iterator[str]:
    near = Point(node.at.x + side * (node.half_width + 4), node.at.y)
    far = Point(near.x + side * 22, near.y)
    start, end = (far, near) if inwards else (near, far)
    shaft, head = arrow((start, start, end, end), 7)
    yield f'<path class="arrow" d="{path(shaft)}"/><path class="tip" d="{head}"/>'
    anchor = "start" if side > 0 else "end"
    yield f'<text class="caption" x="{far.x + side * 5:g}" y="{far.y + 4:g}" text-anchor="{anchor}">{text}</text>'
