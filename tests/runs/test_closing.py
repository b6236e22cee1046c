"""Where the time of a run goes: training, measuring and writing add up to all of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import budgetnet
from budgetnet.budgets.budget import parse_all
from budgetnet.runs.closing import WRITING, Spent
from tests.small_runs import mlp, short, vectors
from tests.summaries import make_summary

PAUSE = 0.001


def slow(net: Any) -> Callable[..., float]:
    """A random cost that takes its time."""

    def cost(architecture: Any) -> float:
        time.sleep(PAUSE)
        return float(len(architecture.live()))

    return cost


slow.stochastic = True  # type: ignore[attr-defined]


def test_seconds_of_a_run_add_up_to_its_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    data = (vectors(160), vectors(64, 1))
    result = budgetnet.search(mlp(), *data, budgets="macs<=60%", recipe=short(), out=tmp_path / "run", quiet=True)
    whole = time.monotonic() - begun
    spent = result.summary.spent
    assert list(spent) == ["training", "measuring", "writing"]
    assert spent["training"] == pytest.approx(result.summary.seconds)
    assert 0.5 * whole < result.summary.total_seconds <= whole
    assert budgetnet.load(tmp_path / "run").summary == result.summary


def test_measurements_of_a_phase_count_as_measuring() -> None:
    net = mlp()
    (budget,) = parse_all([(slow, 6.0)], net)
    spent = Spent([budget])
    begun = time.monotonic()

    def train() -> Any:
        evidence = budget.meter.evidence(net.graph.full)
        assert evidence.how["samples"] >= 100
        return None

    spent.training(train)
    trained = time.monotonic() - begun
    spent.on(WRITING)
    time.sleep(0.05)
    told = spent.told(make_summary(seconds=trained)).spent
    assert told["measuring"] >= 100 * PAUSE
    assert told["training"] + told["measuring"] == pytest.approx(trained, abs=0.05)
    assert told["writing"] >= 0.05
