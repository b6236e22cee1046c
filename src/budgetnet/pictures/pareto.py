"""Fronts and model selection on (cost, score) points: a cost should be low, a score high. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]
"""A cost and a score."""


def front(points: Sequence[Point]) -> list[int]:
    """The points (indices, cheapest first) that no other one beats; of equal ones the first.

    A point is beaten by one that costs no more and scores no less, and differs from it. NaN is never on the front.
    """
    known = [i for i, point in enumerate(points) if not any(map(math.isnan, point))]
    best = -math.inf
    chosen: list[int] = []
    for i in sorted(known, key=lambda i: (points[i][0], -points[i][1], i)):
        if not chosen or points[i][1] > best:
            best = points[i][1]
            chosen.append(i)
    return chosen


def best(points: Sequence[Point], maximum: float = math.inf) -> int | None:
    """The highest score at a cost of at most `maximum`, the cheapest of several; None if there is none."""
    within = [i for i in front(points) if points[i][0] <= maximum]
    return within[-1] if within else None


def selected_on_validation(
    costs: Sequence[float], validation: Sequence[float], test: Sequence[float]
) -> list[tuple[float, float, float]]:
    """The paper's protocol: the models on the validation front as (cost, validation, test), cheapest first.

    The test scores take no part in the selection.
    """
    points = list(zip(costs, validation, strict=True))
    return [(*points[i], test[i]) for i in front(points)]
