"""The console as a sink: what an epoch's line tells."""

from __future__ import annotations

import pytest

from budgetnet.budgets.budget import parse_all
from budgetnet.records.console import ConsoleSink
from budgetnet.records.records import Record
from tests.small_runs import mlp


def test_an_epoch_is_one_line_with_costs_and_how_well_they_are_predicted(capfd: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink(parse_all(["macs<=60%"], mlp()))
    sink.write(Record("phase", "search", 0, 0, 0.0, {"epochs": 2.0, "steps": 8}))
    values = {"loss": 1.25, "accuracy": 0.5, "cost/macs": 10.0, "predictor_error/macs": 0.034, "entropy": 0.5}
    sink.write(Record("epoch", "search", 1, 4, 61.0, values))
    sink.close()
    said = "".join(capfd.readouterr())
    assert "search   2 epochs, 8 steps" in said
    line = next(line for line in said.splitlines() if "epoch 1" in line)
    for part in ("00:01:01", "loss 1.250, accuracy 50.0%", "macs 10", "predicted to 3.4%", "entropy 0.500 bits"):
        assert part in line


def test_a_race_says_whose_turn_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    sink = ConsoleSink([])
    sink.write(Record("phase", "race", 0, 0, 0.0, {"epochs": 4.0, "steps": 16, "racers": 4}))
    sink.write(Record("epoch", "race", 1, 8, 9.0, {"loss": 0.5, "racer": 2, "racers": 4, "round": 1}))
    sink.close()
    said = "".join(capfd.readouterr())
    assert "race     4 candidates, 4 epochs, 16 steps" in said
    assert "race 2/4 · epoch 1 00:00:09 loss 0.500" in " ".join(said.split())
