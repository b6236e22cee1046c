"""`budgetnet reproduce`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from budgetnet.cli.answer import minutes
from budgetnet.cli.options import plain_table, print_json, print_table
from budgetnet.cli.searching import Stop
from budgetnet.cli.sweeping import check_engine, open_engine
from budgetnet.errors import UserError
from budgetnet.records.console import working
from budgetnet.records.folder import RunFolder
from budgetnet.reproduce import (
    REPRODUCTIONS,
    RUNS,
    Reproduction,
    estimated,
    find,
    plan_of,
    write_outcome,
)
from budgetnet.runs.config import Config
from budgetnet.runs.sweep import Plan, Swept, adopt, run_sweep
from budgetnet.runs.sweep.display import Display


def reproduce(
    table: str | None,
    scale: str,
    as_list: bool,
    dry_run: bool,
    out: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """`budgetnet reproduce`: runs what is missing of a table, and writes the table."""
    if as_list:
        return _list([find(table)] if table else list(REPRODUCTIONS.values()), scale, as_json, quiet)
    if table is None:
        raise UserError(f"no table was named; use {', '.join(REPRODUCTIONS)}, or --list to see what each one is")
    entry = find(table)
    with working("counting the paper's networks", quiet):
        plan, models = plan_of(entry.methods(scale), entry.name, **options)
    if dry_run:
        return _dry_run(plan, models, as_json)
    check_engine(engine, workers, address)
    out = out or Path("reproductions") / f"{entry.name}-{scale}"
    _adopt_networks(plan, out, quiet)
    swept = _sweep(plan, out / RUNS, engine, workers, address, quiet)
    with working("writing the table", quiet):
        value, missing = write_outcome(entry, scale, plan, models, out)
    return _report(value, swept, missing, out, as_json)


def _adopt_networks(plan: Plan, out: Path, quiet: bool) -> None:
    """Takes fixed networks that a table beside this one has trained; tables of one data set have them in common."""
    copied = adopt(plan, out / RUNS, sorted(out.parent.glob(f"*/{RUNS}")))
    if copied and not quiet:
        click.echo(f"copied from the tables beside this one: {', '.join(copied)}")


def _sweep(plan: Plan, out: Path, engine: str, workers: int | None, address: str | None, quiet: bool) -> Swept:
    open_runs = [name for name in plan if not RunFolder(out / name).finished]
    display = Display(out, open_runs, len(plan) - len(open_runs), quiet)
    with open_engine(engine, plan, out, workers, address) as chosen, Stop(out) as stop, display:
        command = shlex.join(["budgetnet", *sys.argv[1:]])
        return run_sweep(plan, out, chosen, should_stop=stop.asked, tell=display.tell, command=command)


def _report(value: dict[str, Any], swept: Swept, missing: list[str], out: Path, as_json: bool) -> int:
    if as_json:
        print_json(value)
    else:
        click.echo(f"{value['finished']} of {value['runs']} runs are finished; the table is {out / 'table.md'}")
    reasons = [f"{ending.name} {ending.state}: {ending.message}" for ending in swept.unwell if ending.message]
    for line in [*missing, *reasons]:
        click.echo(line, err=True)
    if swept.interrupted:
        click.echo("interrupted; start the same command again to go on", err=True)
        return 130
    return 1 if swept.unwell else 0


def _list(entries: list[Reproduction], scale: str, as_json: bool, quiet: bool) -> int:
    found: list[dict[str, Any]] = []
    for entry in entries:
        with working(f"estimating {entry.name}", quiet):
            plan, _ = plan_of(entry.methods(scale), entry.name)
            seconds = estimated(plan, entry.setting(scale))
        about = {"table": entry.name, "scale": scale, "about": entry.about}
        found.append({**about, "runs": len(plan), "estimated_seconds": seconds})
    if as_json:
        print_json(found)
        return 0
    shown = plain_table("table", "runs", "estimate", "what", right=("runs", "estimate"))
    for row in found:
        shown.add_row(row["table"], str(row["runs"]), _time(row["estimated_seconds"]), row["about"])
    print_table(shown)
    click.echo(f"estimates at {scale} scale: all runs one after the other on one core, from a timed training step")
    return 0


def _time(seconds: float) -> str:
    return minutes(seconds) if seconds < 2 * 86400 else f"{seconds / 86400:,.0f} days"


def _dry_run(plan: Plan, models: dict[str, str], as_json: bool) -> int:
    if as_json:
        print_json([{"run": name, "model": models[name], "config": asdict(config)} for name, config in plan.items()])
        return 0
    columns = ("model", "space", "budget or architecture", "data", "recipe", "epochs", "λ", "seed")
    shown = plain_table(*columns, right=("epochs", "λ", "seed"))
    for name, config in plan.items():
        shown.add_row(*_cells(models[name], config))
    print_table(shown)
    searches = sum(config.architecture is None for config in plan.values())
    click.echo(f"{len(plan)} runs: {searches} searches, {len(plan) - searches} fixed networks")
    return 0


def _cells(model: str, config: Config) -> list[str]:
    recipe = config.make_recipe("segmentation" if config.data.startswith("lfw-parts") else "classification")
    what = ", ".join(config.budgets) if config.architecture is None else config.architecture
    weight = "" if config.architecture is not None else f"{recipe.penalty:g}" + " and adapted" * recipe.adaptive
    return [model, config.space, what, config.data, recipe.name, f"{recipe.epochs:g}", weight, str(config.seed)]
