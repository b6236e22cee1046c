"""`budgetnet runs` and `budgetnet show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from budgetnet.cli.options import plain_table, print_json, print_table
from budgetnet.cli.searching import print_summary
from budgetnet.errors import UserError
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import read
from budgetnet.runs.config import of_run


def runs(folder: Path, as_json: bool) -> None:
    """`budgetnet runs`: lists the runs in a folder."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give the one that holds your runs")
    found = [RunFolder(path) for path in sorted(folder.iterdir()) if (path / "config.json").exists()]
    rows = [_row(run) for run in found]
    if as_json:
        print_json(rows)
        return
    table = plain_table("run", "space", "budgets", "state", "validation", "test", right=("validation", "test"))
    for row in rows:
        table.add_row(
            row["run"],
            row["space"],
            ", ".join(row["budgets"]) or row["architecture"] or "",
            row["state"],
            _percent(row["validation_accuracy"]),
            _percent(row["test_accuracy"]),
        )
    print_table(table)


def _row(run: RunFolder) -> dict[str, Any]:
    config = of_run(run)
    summary = run.read_json("summary.json") if run.finished else {}
    return {
        "run": str(run.path),
        "space": config.space,
        "architecture": config.architecture,
        "budgets": list(config.budgets),
        "state": "finished" if run.finished else _state(run),
        "validation_accuracy": summary.get("validation_accuracy"),
        "test_accuracy": summary.get("test_accuracy"),
    }


def _state(run: RunFolder) -> str:
    records, _ = read(run.path / "records.jsonl")
    return f"{records[-1].phase}, epoch {records[-1].epoch}" if records else "not begun"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"


def show(run: Path, as_json: bool) -> None:
    """`budgetnet show`: prints one run."""
    folder = RunFolder(run)
    row = _row(folder)
    about = folder.read_json("config.json")
    if as_json:
        print_json(folder.read_json("summary.json") if folder.finished else {**row, "config": about["config"]})
        return
    click.echo(about.get("command", row["space"]))
    if folder.finished:
        print_summary(folder.read_json("summary.json"))
    else:
        click.echo(f"not finished: {_state(folder)}; go on with --resume --out {run}")
