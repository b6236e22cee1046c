"""The table of a sweep, made from its run folders, and the paper's model selection."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import write_file
from budgetnet.naming.values import typed
from budgetnet.pictures.pareto import Point, front
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import MetricDescription, Summary
from budgetnet.runs.arguments import AND
from budgetnet.runs.config import FRESH, Config
from budgetnet.runs.sweep.engine import FAILED, FINISHED, INTERRUPTED
from budgetnet.runs.sweep.plan import Plan

COLUMNS = (
    *("run", "state", "recipe", "seed", "penalty", "budget", "cost", "value", "unit", "met"),
    *("validation", "test", "front", "seconds"),
)
"""Of table.csv. All but `seconds` are the same whenever the same sweep is run."""
FAILURE = "failure.json"
"""In a run's folder: how it ended, if that was not well."""

Row = dict[str, Any]


def rows(plan: Plan, out: Path) -> list[Row]:
    """A row for each run, in the plan's order."""
    found = [_row(name, config, RunFolder(out / name)) for name, config in plan.items()]
    chosen = selected(plan, found)
    return [{**row, "front": row["run"] in chosen if _searched(plan[row["run"]]) else None} for row in found]


def selected(plan: Plan, table: Sequence[Row]) -> set[str]:
    """The runs on the front of (cost, validation score), as in the paper: one front for each method.

    A method is a space with a recipe, on some data, judged by some metric, under some cost: that of a run's first
    budget. Fixed architectures take no part, and neither do test scores.
    """
    methods: dict[tuple[str, ...], list[Row]] = {}
    for row in table:
        config = plan[row["run"]]
        if _searched(config) and row["state"] == FINISHED:
            method = (config.space, config.data, row["metric"], config.recipe or FRESH, row["cost"])
            methods.setdefault(method, []).append(row)
    return {members[i]["run"] for members in methods.values() for i in front([_point(row) for row in members])}


def _point(row: Row) -> Point:
    """A run without a validation score is on no front."""
    score = math.nan if row["validation"] is None else row["validation"]
    return row["value"], score if row["higher_is_better"] else -score


def _searched(config: Config) -> bool:
    return config.architecture is None


def _row(name: str, config: Config, folder: RunFolder) -> Row:
    summary, metric, failure = _found(folder)
    limits = summary.budgets if summary else ()
    first = limits[0] if limits else None
    return {
        "run": name,
        "state": FINISHED if summary else failure.state if failure else INTERRUPTED,
        "message": failure.message if failure else "",
        "space": config.space,
        "architecture": config.architecture,
        "recipe": config.recipe,
        "seed": config.seed,
        "penalty": config.penalty,
        "budget": AND.join(config.budgets) if _searched(config) else None,
        "cost": first.cost if first else None,
        "value": first.value if first else None,
        "unit": first.unit if first else None,
        "met": summary.met if summary and limits and _searched(config) else None,
        "costs": {limit.cost: limit.value for limit in limits},
        "macs": summary.macs if summary else None,
        "params": summary.params if summary else None,
        "metric": metric.name,
        "higher_is_better": metric.higher_is_better,
        "format": metric.format,
        "validation": summary.validation_score if summary else None,
        "test": summary.test_score if summary else None,
        "seconds": summary.seconds if summary else None,
    }


@dataclass(frozen=True)
class Failure:
    """How a run ended that did not end well, as failure.json holds it."""

    state: str
    message: str


def _found(folder: RunFolder) -> tuple[Summary | None, MetricDescription, Failure | None]:
    """The result of a run, or how it ended; one that cannot be read has failed, and does not hide the others."""
    try:
        if not folder.finished:
            return None, MetricDescription(), _failure(folder)
        known = os.path.lexists(folder.path / "data.json")
        return folder.summary(), folder.data().metric if known else MetricDescription(), None
    except UserError as error:
        return None, MetricDescription(), Failure(FAILED, str(error))


def _failure(folder: RunFolder) -> Failure | None:
    if not os.path.lexists(folder.path / FAILURE):
        return None
    return typed(folder.read_json(FAILURE), Failure, str(folder.path / FAILURE))


def write_table(table: Sequence[Row], out: Path) -> None:
    """table.json and table.csv."""
    RunFolder(out).write_json("table.json", list(table))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    write_file(out / "table.csv", text.getvalue().encode())
