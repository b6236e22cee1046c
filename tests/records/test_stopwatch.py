"""The stopwatch: every moment is charged once, nested parts are taken off, and one that is off changes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from budgetnet.records.stopwatch import OTHER, Stopwatch, Untimed, timed


class Clock:
    """Time that passes only when told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_every_moment_is_charged_once_and_nested_parts_are_taken_off() -> None:
    clock = Clock()
    watch = Stopwatch("one", clock)
    clock.pass_by(1)
    with watch.part("outer"):
        clock.pass_by(2)
        with watch.part("inner"):
            clock.pass_by(4)
        clock.pass_by(8)
    watch.phase("two")
    clock.pass_by(16)
    with watch.part("inner"):
        clock.pass_by(32)
    rows = watch.table()
    assert [(row["phase"], row["part"], row["seconds"]) for row in rows] == [
        ("one", "outer", 10),
        ("one", "inner", 4),
        ("one", OTHER, 1),
        ("two", "inner", 32),
        ("two", OTHER, 16),
    ]
    assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_a_part_that_raises_is_charged_and_left() -> None:
    clock = Clock()
    watch = Stopwatch("one", clock)

    def breaks() -> None:
        clock.pass_by(3)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), watch.part("broken"):
        breaks()
    clock.pass_by(5)
    watch.table()
    assert watch.seconds == {("one", OTHER): 5, ("one", "broken"): 3}


def test_items_are_charged_while_they_are_made_not_while_they_are_used() -> None:
    clock = Clock()
    watch = Stopwatch("one", clock)

    def slow() -> Iterator[int]:
        for i in range(3):
            clock.pass_by(10)
            yield i

    assert [(item, clock.pass_by(1))[0] for item in watch.each("data", slow())] == [0, 1, 2]
    watch.table()
    assert watch.seconds == {("one", "data"): 30, ("one", OTHER): 3}


@pytest.mark.parametrize("watch", [Untimed(), Stopwatch("one", itertools.count().__next__)])
def test_a_watch_gives_back_what_it_is_given(watch: Untimed) -> None:
    class Worker:
        def __init__(self) -> None:
            self.watch = watch

        @timed("adding")
        def add(self, a: int, b: int = 1) -> int:
            """Adds."""
            return a + b

    assert Worker().add(1, b=2) == 3
    assert Worker.add.__doc__ == "Adds."
    assert list(watch.each("data", range(4))) == [0, 1, 2, 3]
    if isinstance(watch, Stopwatch):
        assert watch.seconds["one", "adding"] == 1
