"""Learning rates: the form of the one cycle, and the paper's steps."""

import pytest

from budgetnet.training.schedules import one_cycle, part_of, rise_and_hold, step_decay

RISE, PEAK = 0.3, 0.2


def test_one_cycle_rises_then_falls_to_almost_nothing() -> None:
    rates = [one_cycle(PEAK, i / 1000, RISE) for i in range(1001)]
    top = rates.index(max(rates))
    assert top == pytest.approx(1000 * RISE, abs=1)
    assert max(rates) == pytest.approx(PEAK, rel=1e-3)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 1e-3 * PEAK
    assert one_cycle(PEAK, RISE + (1 - RISE) / 2, RISE) == pytest.approx(PEAK / 2, rel=1e-3)


def test_a_rate_that_is_held_stays_at_the_top() -> None:
    assert [rise_and_hold(PEAK, p, RISE) for p in (0.3, 0.5, 1.0)] == [one_cycle(PEAK, RISE, RISE)] * 3
    assert rise_and_hold(PEAK, 0.15, RISE) == pytest.approx(PEAK / 2)


def test_steps_divide_by_ten_at_each_milestone() -> None:
    assert [step_decay(1.0, p, (0.5, 0.75)) for p in (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )


def test_a_part_of_a_schedule_is_what_the_whole_does_there() -> None:
    whole = [p / 10 for p in range(11)]
    last = part_of(lambda progress: progress, 4.0, 6.0, 10.0)
    assert [last(p) for p in (0.0, 0.5, 1.0)] == pytest.approx([whole[4], whole[7], whole[10]])
