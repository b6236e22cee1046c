"""`budgetnet sweep`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from budgetnet.cli.answer import minutes
from budgetnet.cli.options import check_threads, named_score, plain_table, print_json, print_table
from budgetnet.cli.searching import Stop
from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.naming.values import printable
from budgetnet.records.console import working
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import PARTS, MetricDescription
from budgetnet.runs.arguments import AND
from budgetnet.runs.config import from_toml
from budgetnet.runs.sweep import (
    DaskEngine,
    Engine,
    Plan,
    Swept,
    check_folder,
    estimates,
    local_engine,
    make_plan,
    run_sweep,
)
from budgetnet.runs.sweep.display import Display
from budgetnet.runs.sweep.table import Row

LONGEST_MESSAGE = 1000
"""Characters of a message about a run that are printed."""


def sweep(
    file: Path | None,
    out: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    test_all: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """`budgetnet sweep`: runs many searches and baselines."""
    check_threads(options.get("threads") if engine == "local" else None)
    plan, out, own = _plan(file, options), _folder(file, out), _own(options)
    if dry_run:
        return _dry_run(plan, as_json, quiet, own)
    check_engine(engine, workers, address)
    check_folder(plan, out)
    missing = [name for name in plan if not RunFolder(out / name).finished]
    display = Display(out, missing, len(plan) - len(missing), quiet)
    with open_engine(engine, plan, out, workers, address) as chosen, Stop(out) as stop, display:
        command = shlex.join(["budgetnet", *sys.argv[1:]])
        swept = run_sweep(
            plan, out, chosen, should_stop=stop.asked, tell=display.tell, command=command, test_all=test_all, own=own
        )
    return _report(swept, out, as_json)


def _plan(file: Path | None, options: dict[str, Any]) -> Plan:
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    return make_plan({**(from_toml(file) if file else {}), **given}, str(file or "the command line"))


def _own(options: dict[str, Any]) -> frozenset[str]:
    """The names of the user's own code on the command line; a file of settings can add none."""
    budgets = [text for entry in options["budgets"] or () for text in entry.split(AND)]
    return own_names(options["space"] or "", *(options["costs"] or ()), *budgets, *(options["architectures"] or ()))


def _folder(file: Path | None, out: Path | None) -> Path:
    if out is None and file is None:
        raise UserError("the sweep has no folder; give --out, such as --out sweeps/a")
    return out or Path("sweeps") / file.stem  # type: ignore[union-attr]


def check_engine(engine: str, workers: int | None, address: str | None) -> None:
    """Refuses options that do not belong to an engine."""
    if engine == "dask" and address is None:
        raise UserError("the Dask engine needs the address of a scheduler; give --address tcp://host:8786")
    if engine == "dask" and workers is not None:
        raise UserError("--workers is for the local engine; on a Dask cluster each worker thread is a slot")
    if engine == "local" and address is not None:
        raise UserError(f"the address {address} is of no use to the local engine; add --engine dask")


@contextmanager
def open_engine(name: str, plan: Plan, out: Path, workers: int | None, address: str | None) -> Iterator[Engine]:
    """The engine of that name, for as long as it is used."""
    if name == "local":
        yield local_engine(list(plan.values()), workers)
        return
    with DaskEngine(str(address), out) as engine:
        yield engine


def _dry_run(plan: Plan, as_json: bool, quiet: bool, own: frozenset[str]) -> int:
    with working("timing a few steps", quiet):
        found = estimates(plan, own)
    if as_json:
        print_json([{"run": name, "config": plan[name].to_dict(), **vars(found[name])} for name in plan])
        return 0
    table = plain_table("run", "estimated", right=("estimated",))
    for name, estimate in found.items():
        table.add_row(name, estimate.refusal or minutes(estimate.seconds or 0.0))
    print_table(table)
    seconds = sum(estimate.seconds or 0.0 for estimate in found.values())
    click.echo(f"{len(plan)} runs, {minutes(seconds)} one after the other on this machine")
    return 0


def _report(swept: Swept, out: Path, as_json: bool) -> int:
    if swept.interrupted:
        click.echo("interrupted; start the same command again to go on", err=True)
        return 130
    if as_json:
        print_json(swept.table)
    else:
        _print_rows(swept.table)
        click.echo(f"table: {out / 'table.csv'}; one page about all runs: budgetnet report {out}")
    for ending in swept.unwell:
        click.echo(f"{ending.name} {ending.state}: {printable(ending.message, LONGEST_MESSAGE)}", err=True)
    return 1 if swept.unwell else 0


def _print_rows(table: Sequence[Row]) -> None:
    right = ("seed", "λ", "value", "validation", "test", "time")
    columns = ("run", "recipe", "seed", "λ", "budget", "value", "met", "validation", "test", "front", "time")
    shown = plain_table(*columns, right=right)
    for row in table:
        shown.add_row(
            row["run"],
            row["recipe"],
            str(row["seed"]),
            "" if row["penalty"] is None else f"{row['penalty']:g}",
            row["budget"] or "",
            "" if row["value"] is None else show(row["value"], row["unit"]),
            row["state"]
            if row["met"] is None and row["value"] is None
            else {True: "yes", False: "NO"}.get(row["met"], ""),
            *(named_score(MetricDescription(row["metric"], format=row["format"]), row[part]) for part in PARTS),
            "yes" if row["front"] else "",
            "" if row["seconds"] is None else minutes(row["seconds"]),
        )
    print_table(shown)
