"""`budgetnet.search` from Python: optimizers, callbacks, sinks, forward passes, dry runs, and exact resumption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import budgetnet
from budgetnet.records.records import Record
from budgetnet.strategies.optimizers import trained_with
from budgetnet.strategies.recipes import fast
from tests.small_runs import mlp, same_run, vectors

BRIEF: dict[str, Any] = {"budgets": {"macs": "60%"}, "epochs": 1, "batch_size": 32, "quiet": True}


class Trembling(Dataset[tuple[Tensor, Tensor]]):
    """Examples with noise that differs from epoch to epoch."""

    def __init__(self) -> None:
        self.inputs, self.targets = vectors(128)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index] + 0.1 * torch.randn(6), self.targets[index]


class Stop(budgetnet.Callback):
    """Ends the process in the middle of a phase, as far as the run can tell."""

    def step_ended(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        if phase == "finish" and step == 2:
            raise KeyboardInterrupt


class Lines:
    """A sink of ten lines, as one would write it for a service: names and numbers of every record."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []

    def write(self, record: Record) -> None:
        if record.kind in ("step", "epoch"):
            self.logged.append({f"{record.phase}/{name}": value for name, value in record.values.items()})

    def close(self) -> None:
        pass


def test_a_run_on_a_data_set_with_random_transforms_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    given = {**BRIEF, "optimizer": "adamw", "clip": 1.0}
    budgetnet.search(mlp(), Trembling(), vectors(64, 1), out=tmp_path / "whole", **given)
    with pytest.raises(KeyboardInterrupt):
        budgetnet.search(mlp(), Trembling(), vectors(64, 1), out=tmp_path / "cut", callbacks=[Stop()], **given)
    assert not (tmp_path / "cut" / "summary.json").exists()
    budgetnet.search(mlp(), Trembling(), vectors(64, 1), out=tmp_path / "cut", resume=True, **given)
    same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_sink_gets_what_the_json_lines_have_and_regression_has_no_accuracy(tmp_path: Path) -> None:
    inputs, _ = vectors(128)
    train = inputs, inputs @ torch.tensor([[1.0], [2.0], [0.0], [0.0], [-1.0], [0.5]]).expand(6, 3)
    sink = Lines()
    result = budgetnet.search(mlp(), train, train, loss="mse", sinks=[sink], out=tmp_path / "run", **BRIEF)
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["kind"] in ("step", "epoch")]
    assert len(kept) == len(sink.logged) > 3
    for line, logged in zip(kept, sink.logged, strict=True):
        assert {name.partition("/")[2] for name in logged} <= line.keys()
    text = (tmp_path / "run" / "records.jsonl").read_text() + (tmp_path / "run" / "summary.json").read_text()
    assert "accuracy" not in text + str(result.summary)
    assert (
        json.loads((tmp_path / "run" / "summary.json").read_text())["validation_r2"] == result.summary.validation_score
    )
    assert result.evaluate(train) == pytest.approx(result.summary.validation_score, rel=1e-5)


def test_a_forward_pass_of_the_users_own_and_a_dry_run(tmp_path: Path) -> None:
    inputs, targets = vectors(128)
    data = {"left": inputs[:, :3], "right": inputs[:, 3:], "labels": targets}

    def forward(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
        found: Tensor = model(torch.cat([batch["left"], batch["right"]], 1))
        return found

    given = {**BRIEF, "forward": forward, "out": tmp_path / "run"}
    forecast = budgetnet.search(mlp(), data, data, dry_run=True, **given)
    assert forecast.seconds > 0
    assert forecast.budgets[0]["smallest"] <= forecast.budgets[0]["maximum"] <= forecast.budgets[0]["full"]
    assert not (tmp_path / "run").exists(), "a dry run writes nothing"
    result = budgetnet.search(mlp(), data, data, **given)
    raw = {name: data[name] for name in ("left", "right")}
    torch.testing.assert_close(result.predict(raw), result.network(inputs))


def test_the_optimizer_follows_from_the_network_unless_it_is_given() -> None:
    plain = nn.Sequential(nn.Linear(2, 2))
    normed = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def optimizer(net: nn.Module, **given: Any) -> tuple[torch.optim.Optimizer, float]:
        recipe, factory = trained_with(fast(), net, **given)
        return (factory or recipe.make_optimizer)(net), recipe.clip

    assert isinstance(optimizer(normed)[0], torch.optim.SGD)
    made, clip = optimizer(plain)
    assert isinstance(made, torch.optim.AdamW)
    assert clip == 1
    assert isinstance(optimizer(plain, optimizer="sgd")[0], torch.optim.SGD)
    assert optimizer(normed, lr=0.05)[0].param_groups[0]["lr"] == 0.05
    assert isinstance(optimizer(normed, optimizer=lambda p: torch.optim.RAdam(p, 1e-3))[0], torch.optim.RAdam)
    assert trained_with(fast(), normed, optimizer=lambda p: torch.optim.RAdam(p, 1e-3))[0].weights.lr == 1e-3  # type: ignore[attr-defined]
