"""The natural layouts of the built-in spaces: rows of groups, and a grid of columns and scales."""

from __future__ import annotations

import re

from budgetnet.pictures.draw.geometry import Point, bow
from budgetnet.pictures.draw.layout import PLAIN, RADIUS, Caption, Layout, Node, Route, fan, parallels, shape_text
from budgetnet.pictures.outline import Drawable

Cells = dict[str, tuple[int, int]]

LEFT, TOP, RIGHT, BOTTOM = 170.0, 44.0, 90.0, 40.0
GAP = RADIUS + 2.5
OUTWARDS = 20.0

KINDS = {"block": "block: two convolutions", "skip": "skip: identity or projection"}


def _cells(net: Drawable, pattern: str) -> Cells | None:
    """The two numbers in every node's name, or None if this is not such a graph."""
    found = {node: re.fullmatch(pattern, node) for node in net.graph.nodes}
    if not all(found.values()):
        return None
    return {node: (int(match[1]), int(match[2])) for node, match in found.items() if match}


def group_rows(net: Drawable) -> Layout | None:
    """A ResNet fabric: a row for each group, odd ones from right to left, so that mirrored blocks face each other."""
    cells = _cells(net, r"g(\d+)b(\d+)")
    if cells is None:
        return None
    across, down = 72.0, 128.0
    last = max(block for _, block in cells.values())

    def place(group: int, block: int) -> Point:
        return Point(LEFT + across * (last - block if group % 2 else block), TOP + down * group)

    nodes = {node: Node(place(*cell), str(cell[1])) for node, cell in cells.items()}
    routes = []
    for edge, (order, count) in zip(net.graph.edges, parallels(net.graph), strict=True):
        source, target = nodes[edge.source].at, nodes[edge.target].at
        bend = fan(order, count, 19.0 if source.y == target.y else 15.0)
        if cells[edge.target][0] - cells[edge.source][0] > 1:  # past a row: around its end, where there is no node
            bend += OUTWARDS if source.x > LEFT else -OUTWARDS
        kind = edge.name.rpartition(".")[2]
        routes.append(Route(bow(source, target, bend, GAP), kind if kind in KINDS else PLAIN))
    groups = sorted({group for group, _ in cells.values()})
    captions = [
        Caption(Point(14, TOP + down * group + dy), text)
        for group in groups
        for dy, text in ((-4, f"group {group}"), (11, shape_text(_shape(net, f"g{group}b{last}"))))
    ]
    height = TOP + down * (len(groups) - 1) + BOTTOM
    return Layout(nodes, tuple(routes), KINDS, tuple(captions), LEFT + across * last + RIGHT, height)


def column_grid(net: Drawable) -> Layout | None:
    """A neural fabric: columns from left to right, scales from fine to coarse downwards."""
    cells = _cells(net, r"c(\d+)s(\d+)")
    if cells is None:
        return None
    across, down = 104.0, 72.0
    top = TOP + 22
    nodes = {
        node: Node(Point(LEFT + across * column, top + down * scale), f"{column},{scale}")
        for node, (column, scale) in cells.items()
    }
    names = ("up", "same", "down")
    routes = []
    for edge in net.graph.edges:
        step = cells[edge.target][1] - cells[edge.source][1]
        routes.append(Route(bow(nodes[edge.source].at, nodes[edge.target].at, 0.0, GAP), names[step + 1]))
    columns, scales = (max(cell[i] for cell in cells.values()) for i in (0, 1))
    captions = [Caption(Point(LEFT + across * c, 22), f"column {c}", "middle") for c in range(columns + 1)]
    for scale in range(scales + 1):
        captions.append(Caption(Point(14, top + down * scale - 4), f"scale {scale}"))
        captions.append(Caption(Point(14, top + down * scale + 11), shape_text(_shape(net, f"c{columns}s{scale}"))))
    kinds = {"same": "same scale", "down": "down: stride 2", "up": "up-sampling"}
    return Layout(
        nodes, tuple(routes), kinds, tuple(captions), LEFT + across * columns + RIGHT, top + down * scales + BOTTOM
    )


def _shape(net: Drawable, node: str) -> tuple[int, ...]:
    return net.shapes.nodes[net.graph.nodes.index(node)] if node in net.graph.nodes else ()
