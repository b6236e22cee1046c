"""`budgetnet runs` and `budgetnet show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from budgetnet.cli.answer import print_answer
from budgetnet.cli.options import named_score, plain_table, print_json, print_table
from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.records.folder import RunFolder, runs_in
from budgetnet.records.results import PARTS, MetricDescription, Summary
from budgetnet.runs.config import of_run

LONGEST_COMMAND = 2000
"""Characters of a command line that are printed."""


def runs(folder: Path, as_json: bool) -> None:
    """`budgetnet runs`: lists the runs in a folder."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; give the one that holds your runs")
    found = [RunFolder(path) for path in runs_in(folder)]
    rows = [_row(run) for run in found]
    if as_json:
        print_json(rows)
        return
    table = plain_table("run", "space", "budgets", "state", "validation", "test", right=("validation", "test"))
    for run, row in zip(found, rows, strict=True):
        table.add_row(
            row["run"],
            row["space"],
            ", ".join(row["budgets"]) or row["architecture"] or "",
            row.get("problem", row["state"]),
            *(named_score(run.metric(), row.get(f"{part}_{run.metric().name}")) for part in PARTS),
        )
    print_table(table)


def _row(run: RunFolder) -> dict[str, Any]:
    """A run as a row; one that cannot be read says why, and does not hide the others."""
    row: dict[str, Any] = {
        "run": str(run.path),
        "space": "",
        "architecture": None,
        "budgets": [],
        "state": "damaged",
        **_scores(run.metric(), None),
    }
    try:
        return {**row, **_facts(run)}
    except UserError as error:
        return {**row, "problem": printable(error)}


def _facts(run: RunFolder) -> dict[str, Any]:
    config = of_run(run)
    summary = run.summary() if run.finished else None
    return {
        "space": config.space,
        "architecture": config.architecture,
        "budgets": list(config.budgets),
        "state": "finished" if summary else _state(run),
        **_scores(run.metric(), summary),
    }


def _scores(metric: MetricDescription, summary: Summary | None) -> dict[str, float | None]:
    """The scores of a run under the name of its metric."""
    found = (summary.validation_score, summary.test_score) if summary else (None, None)
    return {f"{part}_{metric.name}": score for part, score in zip(PARTS, found, strict=True)}


def _state(run: RunFolder) -> str:
    records, _ = run.records()
    return f"{records[-1].phase}, epoch {records[-1].epoch}" if records else "not begun"


def show(run: Path, as_json: bool) -> None:
    """`budgetnet show`: prints one run."""
    folder = RunFolder(run)
    origin, facts = folder.origin(), _facts(folder)
    summary = folder.summary() if folder.finished else None
    if as_json:
        print_json(summary.to_json() if summary else {"run": str(run), **facts, "config": dict(origin.config)})
        return
    click.echo(printable(origin.command or facts["space"], LONGEST_COMMAND))
    if summary:
        print_answer(summary, run)
    else:
        click.echo(f"not finished: {printable(facts['state'])}; go on with --resume --out {run}")
