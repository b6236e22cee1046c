"""Code in the documentation does what the page says."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import budgetnet
from tests.small_runs import mlp, short, vectors

PAGE = Path(__file__).parent.parent / "docs" / "your-data.md"


def sink_class(name: str, folder: Path) -> Any:
    """The class that a block of the page defines, run as a file."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if f"class {name}:" in block]
    lines = [line for line in block.partition("class ")[2].splitlines() if line.strip()]
    assert len(lines) <= 10, "a sink is ten lines"
    file = folder / f"{name}.py"
    file.write_text(block, encoding="utf-8")
    return runpy.run_path(str(file))[name]


def test_the_sinks_for_other_trackers_log_what_the_json_lines_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two services are stood in for by modules that remember their calls, under the names of their interfaces."""
    logged: list[dict[str, float]] = []
    metrics: list[tuple[dict[str, float], int]] = []
    ended: list[str] = []
    wandb, mlflow = ModuleType("wandb"), ModuleType("mlflow")
    run = SimpleNamespace(log=logged.append, finish=lambda: ended.append("wandb"))
    wandb.init = lambda project: run  # type: ignore[attr-defined]
    mlflow.set_experiment = mlflow.start_run = lambda *names: None  # type: ignore[attr-defined]
    mlflow.log_metrics = lambda values, step: metrics.append((values, step))  # type: ignore[attr-defined]
    mlflow.end_run = lambda: ended.append("mlflow")  # type: ignore[attr-defined]
    for module in (wandb, mlflow):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    sinks = [sink_class(name, tmp_path)("budgets") for name in ("WeightsAndBiases", "MLflow")]
    given = {"budgets": ["macs<=60%", "steps(2)<=90%"], "recipe": short(), "quiet": True}
    budgetnet.search(mlp(), vectors(160), vectors(64, 1), out=tmp_path / "run", sinks=sinks, **given)
    assert sorted(ended) == ["mlflow", "wandb"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    head = {"kind", "phase", "epoch", "step", "time"}
    expected = [
        {f"{line['phase']}/{k}": v for k, v in line.items() if k not in head and isinstance(v, int | float)}
        for line in lines
    ]
    assert logged == expected
    assert [step for _, step in metrics] == [line["step"] for line in lines]
    for (values, _), wanted in zip(metrics, expected, strict=True):
        assert list(values.values()) == list(wanted.values())
        assert all(re.fullmatch(r"[\w./ -]+", name) for name in values), "names that MLflow takes"
    assert any("steps-2-" in name for values, _ in metrics for name in values)
