"""The multiplier against the controller written out, and on a plant that it must settle on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.budgets.multiplier import Multiplier
from tests.random_graphs import examples


@examples(60)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=60), st.floats(0, 3))
def test_the_multiplier_is_the_written_out_controller(violations: list[float], start: float) -> None:
    multiplier = Multiplier(start)
    value, average = start, None
    for violation in violations:
        multiplier.update(violation)
        error = min(max(violation, -1), 1)
        before = error if average is None else average
        average = 0.9 * before + 0.1 * error
        value = max(0.0, value + 0.05 * error + 1.0 * (average - before))
        assert multiplier.value == pytest.approx(value, abs=1e-12)
        assert multiplier.value >= 0


def test_the_multiplier_settles_where_the_constraint_is_just_met() -> None:
    """A plant whose cost falls with λ (and lags behind it): λ must find 1.7 without swinging for ever."""
    multiplier, cost, seen = Multiplier(1.0), 2.0, []
    for _ in range(600):
        cost += 0.2 * (2.0 * math.exp(-multiplier.value * math.log(2) / 1.7) - cost)
        multiplier.update(cost - 1)
        seen.append(multiplier.value)
    assert max(abs(value - 1.7) for value in seen[-100:]) < 0.05
