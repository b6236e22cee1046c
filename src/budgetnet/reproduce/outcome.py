"""What a reproduction leaves in its folder: table.md, table.json and pictures, from whatever has been run so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.naming.files import write_file
from budgetnet.records.environment import environment
from budgetnet.records.folder import RunFolder
from budgetnet.reproduce.catalogue import Reproduction
from budgetnet.reproduce.figures import (
    draw_dynamics,
    draw_found,
    draw_plane,
    draw_selection,
    dynamics_of,
    dynamics_table,
    last_entropy,
)
from budgetnet.reproduce.table import Comparison, as_json, as_markdown, compare, selected
from budgetnet.runs.sweep import Plan
from budgetnet.runs.sweep.engine import FINISHED
from budgetnet.runs.sweep.table import Row, rows

RUNS = "runs"
"""The sweep, in the folder of the reproduction."""
ENDS = ("macs", "validation", "test")
"""What is said of the networks of a figure of dynamics, which are in no table."""
EXPLAINED = (
    " Recomputed is the cost of the published network, built here in the paper's setting. What was found is chosen on "
    "the front of (cost, validation accuracy); its test accuracy took no part in that."
)


def write_outcome(
    entry: Reproduction, scale: str, plan: Plan, models: Mapping[str, str], out: Path
) -> tuple[dict[str, Any], list[str]]:
    """The table as a value, and what could not be drawn for want of an extra."""
    table = rows(plan, out / RUNS)
    finished = [row for row in table if row["state"] == FINISHED]
    trained = [(models[row["run"]], out / RUNS / row["run"]) for row in finished]
    entropies = {run.name: last_entropy(run) for _, run in trained}
    comparisons = [compare(one, entry.setting("full"), table, models, entropies) for one in entry.tables]
    found = list(dict.fromkeys(run for one in comparisons for run in selected(one)))
    pictures = draw_found(out / RUNS, found, out)
    missing: list[str] = []
    try:
        for one in comparisons:
            _draw_planes(one, table, models, scale, out)
        draw_dynamics([] if entry.tables else trained, out)
    except UserError as error:
        missing = [f"no charts were drawn: {error}"]
    value = {
        **_about(entry, scale, table),
        "tables": [as_json(one) for one in comparisons],
        "dynamics": [] if entry.tables else [_dynamics(row, models, out) for row in finished],
    }
    RunFolder(out).write_json("table.json", value)
    text = [_head(entry, scale, plan, len(trained)), *(as_markdown(one, pictures) for one in comparisons)]
    text += [] if entry.tables else [dynamics_table(trained), *(_end(row, models) for row in finished), ""]
    write_file(out / "table.md", "\n".join(text).encode())
    return value, missing


def _dynamics(row: Row, models: Mapping[str, str], out: Path) -> dict[str, Any]:
    ends = {name: row[name] for name in ENDS}
    return {"model": models[row["run"]], **ends, "rows": dynamics_of(out / RUNS / row["run"])}


def _end(row: Row, models: Mapping[str, str]) -> str:
    """What a run of a figure ends as."""
    scores = [f"{row[part]:{row['format']}} {part}" for part in ("validation", "test") if row[part] is not None]
    return f"- {models[row['run']]}, at the end: {show(row['macs'], 'macs')} multiply-adds; {', '.join(scores)}"


def _draw_planes(one: Comparison, table: Sequence[Row], models: Mapping[str, str], scale: str, out: Path) -> None:
    cost = f"{one.cost.partition('(')[0]}{_machines(one.cost)}"
    draw_plane(one, out / f"accuracy-{cost}.svg", scale == "full")
    draw_selection(one, table, models, out / f"selection-{cost}.svg")


def _machines(cost: str) -> str:
    """`-4` of steps(4,dfs)."""
    return f"-{cost.partition('(')[2].partition(',')[0]}" if cost.startswith("steps") else ""


def _about(entry: Reproduction, scale: str, table: Sequence[Row]) -> dict[str, Any]:
    finished = sum(row["state"] == FINISHED for row in table)
    about = {"name": entry.name, "about": entry.about, "scale": scale, "runs": len(table), "finished": finished}
    return {**about, **environment()}


def _head(entry: Reproduction, scale: str, plan: Plan, finished: int) -> str:
    config = next(iter(plan.values()))
    epochs = f"{config.epochs:g} epochs" if config.epochs else "as many epochs as the paper"
    epochs += f", batch {config.batch_size}" if config.batch_size else ""
    note = "the paper's setting" if scale == "full" else "a reduced setting, not the paper's"
    return (
        f"# {entry.name} at {scale} scale\n\n{entry.about[0].upper()}{entry.about[1:]}.\n\n"
        f"Ours is {note}: {config.data}, recipe {config.recipe}, {epochs}; {finished} of {len(plan)} runs are done."
        f"{EXPLAINED if entry.tables else ''}\n"
    )
