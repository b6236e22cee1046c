"""`budgetnet sweep`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from budgetnet.cli.options import plain_table, print_json, print_table
from budgetnet.cli.searching import Stop, minutes
from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.records.console import working
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import DEVICES, from_toml
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
from budgetnet.runs.sweep.plan import AXES
from budgetnet.runs.sweep.table import Row

ENGINES = ("local", "dask")


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where runs run: the options of every command that runs many."""
    options = [
        click.option("--device", help=f"{', '.join(DEVICES)}."),
        click.option("--threads", type=int, help="Threads of a run; the cores divided by the workers if not given."),
        click.option(
            "--engine", type=click.Choice(ENGINES), default="local", show_default=True, help="Where runs run."
        ),
        click.option("--workers", type=int, help="Runs at a time (local); as many as there are cores if not given."),
        click.option("--address", help="Of the scheduler (dask), such as tcp://host:8786."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class _Lists(click.Command):
    """Lets `--seeds 0 1 2` stand for `--seeds 0 --seeds 1 --seeds 2`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(_repeated(args)))


def _repeated(args: Sequence[str]) -> Iterator[str]:
    axis, fresh = None, False
    for arg in args:
        if arg.startswith("--"):
            axis, fresh = (arg if arg.removeprefix("--") in AXES else None), True
        elif axis is not None and not fresh:
            yield axis
        yield arg
        fresh = fresh and arg.startswith("--")


@click.command(cls=_Lists)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--budgets", multiple=True, help='Each a search: "macs<=40%" "macs<=60% & params<=1M".')
@click.option("--recipes", multiple=True, help="fast (default), paper, with options: fast:anneal=0.8.")
@click.option("--seeds", multiple=True, type=int, help="Such as 0 1 2; 0 if not given.")
@click.option("--penalties", multiple=True, help="λ: a list, or first:last:count such as 0.1:10:5, log-spaced.")
@click.option("--architectures", multiple=True, help="Baselines to train: resnet-20, SPACE, SPACE@NAME or a file.")
@click.option("--space", help="Super network; see `budgetnet spaces`.")
@click.option("--data", help="As for `budgetnet search`.")
@click.option("--data-root", envvar="BUDGETNET_DATA", help="Folder of the data sets (or BUDGETNET_DATA).")
@click.option("--cost", "costs", multiple=True, help="A cost of your own, package.module:name.")
@click.option("--epochs", type=float, help="Epochs of the final training (fast), or of everything (paper).")
@click.option("--groups", type=int, help="Architectures that share a batch.")
@click.option("--batch-size", type=int, help="Examples in a batch.")
@click.option("--max-time", help="For each run: 30m, 1h30m, 90s.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the sweep; sweeps/NAME for NAME.toml.")
@engine_options
@click.option("--test-all", is_flag=True, help="Test every run, not only the front: to compare recipes over seeds.")
@click.option("--dry-run", is_flag=True, help="Print the plan and the estimated time; run nothing.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--json", "as_json", is_flag=True, help="The table as JSON at the end.")
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
    """Many searches, the front of (cost, validation score), and the test score of what is on it.

    The settings come from the command line, from a TOML FILE, or from both. Run again, a sweep goes on: what is
    finished stays, what was interrupted resumes.

    \b
    budgetnet sweep --budgets "macs<=40%" "macs<=60%" --seeds 0 1 --architectures resnet-20 --out sweeps/a
    budgetnet sweep --budgets "macs<=40%" --recipes paper --penalties 0.1:10:5 --out sweeps/b
    budgetnet sweep experiment.toml --engine dask --address tcp://host:8786
    """
    plan, out = _plan(file, options), _folder(file, out)
    if dry_run:
        return _dry_run(plan, as_json, quiet)
    check_engine(engine, workers, address)
    check_folder(plan, out)
    missing = [name for name in plan if not RunFolder(out / name).finished]
    display = Display(out, missing, len(plan) - len(missing), quiet)
    with open_engine(engine, plan, out, workers, address) as chosen, Stop(out) as stop, display:
        command = shlex.join(["budgetnet", *sys.argv[1:]])
        swept = run_sweep(
            plan, out, chosen, should_stop=stop.asked, tell=display.tell, command=command, test_all=test_all
        )
    return _report(swept, out, as_json)


def _plan(file: Path | None, options: dict[str, Any]) -> Plan:
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    return make_plan({**(from_toml(file) if file else {}), **given}, str(file or "the command line"))


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


def _dry_run(plan: Plan, as_json: bool, quiet: bool) -> int:
    with working("timing a few steps", quiet):
        found = estimates(plan)
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
        click.echo(f"{ending.name} {ending.state}: {ending.message}", err=True)
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
            _percent(row["validation"]),
            _percent(row["test"]),
            "yes" if row["front"] else "",
            "" if row["seconds"] is None else minutes(row["seconds"]),
        )
    print_table(shown)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.2%}"
