"""Fronts against the definition, by enumeration."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from budgetnet.pictures.pareto import Point, best, front, selected_on_validation
from tests.random_graphs import examples

grid = st.lists(st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)), max_size=12)


def beaten(point: Point, points: list[Point]) -> bool:
    return any(cost <= point[0] and score >= point[1] and (cost, score) != point for cost, score in points)


@given(grid)
@examples(300)
def test_front_is_what_nobody_beats(points: list[Point]) -> None:
    found = front(points)
    assert {points[i] for i in found} == {point for point in points if not beaten(point, points)}
    assert len({points[i] for i in found}) == len(found), "of equal points the first stands for all"
    assert all(points.index(points[i]) == i for i in found)
    assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)


@given(grid, st.integers(0, 7).map(float))
@examples(300)
def test_best_is_the_highest_within_the_maximum(points: list[Point], maximum: float) -> None:
    inside = [point for point in points if point[0] <= maximum]
    found = best(points, maximum)
    if not inside:
        assert found is None
    else:
        assert found is not None
        assert points[found] == min(inside, key=lambda point: (-point[1], point[0]))


def test_nothing_and_unknown_scores() -> None:
    assert front([]) == []
    assert best([]) is None
    assert front([(1.0, math.nan), (math.nan, 2.0), (3.0, -math.inf)]) == [2]


def test_selection_does_not_look_at_test_scores() -> None:
    costs, validation = [1.0, 2.0, 3.0, 4.0], [0.5, 0.4, 0.7, 0.7]
    chosen = selected_on_validation(costs, validation, [0.1, 0.99, 0.2, 0.99])
    assert chosen == [(1.0, 0.5, 0.1), (3.0, 0.7, 0.2)]
