"""Points and cubic Bézier curves, as SVG writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Point(NamedTuple):
    """A place on the page, in pixels, y downwards."""

    x: float
    y: float


Curve = tuple[Point, ...]
"""A start, then three points (two handles and an end) for each piece."""


def along(start: Point, end: Point, distance: float) -> Point:
    """The point at this distance from `start` towards `end`."""
    length = math.dist(start, end) or 1.0
    return Point(start.x + (end.x - start.x) * distance / length, start.y + (end.y - start.y) * distance / length)


def bow(start: Point, end: Point, bend: float, margin: float) -> Curve:
    """A curve between two discs of radius `margin`, whose middle lies `bend` to the left of the straight line."""
    length = math.dist(start, end) or 1.0
    left = Point((end.y - start.y) / length, -(end.x - start.x) / length)
    pull = bend * 4 / 3
    handles = [along(start, end, length * share) for share in (0.3, 0.7)]
    first, second = (Point(p.x + left.x * pull, p.y + left.y * pull) for p in handles)
    return (along(start, first, margin), first, second, along(end, second, margin))


def flow(stops: Sequence[Point], lean: float = 0.5) -> Curve:
    """A curve through the stops that leaves and enters each of them horizontally."""
    points = [stops[0]]
    for here, there in pairwise(stops):
        reach = (there.x - here.x) * lean
        points += [Point(here.x + reach, here.y), Point(there.x - reach, there.y), there]
    return tuple(points)


def path(curve: Curve) -> str:
    """The `d` attribute of a curve."""
    text = f"M{_pair(curve[0])}"
    for i in range(1, len(curve), 3):
        text += "C" + " ".join(_pair(point) for point in curve[i : i + 3])
    return text


def arrow(curve: Curve, length: float) -> tuple[Curve, str]:
    """A curve cut short, and the head that takes its end's place (a `d` attribute): a triangle of this length."""
    last = curve[-4:]
    share = max(1 - length / (math.dist(last[0], last[3]) or 1.0), 0.0)
    start, mid = [last[0]], list(last)
    while len(mid) > 1:  # de Casteljau: the left ends of each round are the handles of the part that stays
        mid = [_between(a, b, share) for a, b in pairwise(mid)]
        start.append(mid[0])
    tip, base = last[3], start[-1]
    across = Point((tip.y - base.y) * 0.42, -(tip.x - base.x) * 0.42)
    left, right = Point(base.x + across.x, base.y + across.y), Point(base.x - across.x, base.y - across.y)
    return (*curve[:-4], *start), f"M{_pair(tip)}L{_pair(left)}L{_pair(right)}Z"


def _between(a: Point, b: Point, share: float) -> Point:
    return Point(a.x + (b.x - a.x) * share, a.y + (b.y - a.y) * share)


def _pair(point: Point) -> str:
    return f"{round(point.x, 1):g},{round(point.y, 1):g}"
