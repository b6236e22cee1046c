"""`budgetnet search` and `budgetnet train`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import click

from budgetnet.budgets.feasibility import Profile, profile
from budgetnet.cli.answer import minutes, print_answer
from budgetnet.cli.options import check_threads, plain_table, print_json, print_table
from budgetnet.costs.units import show
from budgetnet.errors import Interrupted, UserError
from budgetnet.naming import own_names
from budgetnet.records.console import working
from budgetnet.records.folder import RunFolder, new_folder
from budgetnet.records.results import Summary
from budgetnet.records.sinks import TensorBoard
from budgetnet.records.stopwatch import OFF, Stopwatch, Untimed
from budgetnet.runs.config import Config, duration, from_mapping, from_toml, of_run
from budgetnet.runs.execute import Options, execute, write_report_of
from budgetnet.runs.family import curve, member_folders, parts_of, run_family, sharing
from budgetnet.runs.job import Job, check_job, estimated_seconds, prepare
from budgetnet.runs.result import Result
from budgetnet.training.processes import Processes

FORWARDED = 2.0
"""Seconds in which torchrun's signal is the same wish to stop as the one that the terminal sent."""


def search(dry_run: bool, family: Sequence[str], **options: Any) -> int:
    """`budgetnet search`: searches for a network that meets every budget, or for one for each of several budgets."""
    return _search_family(family, options, dry_run) if family else _start(options, dry_run)


def train(space: str, architecture: str, **options: Any) -> int:
    """`budgetnet train`: trains one fixed architecture, a baseline."""
    return _start({**options, "space": space, "architecture": architecture, "budgets": ()}, dry_run=False)


def _start(options: dict[str, Any], dry_run: bool) -> int:
    controls = _controls(options)
    watch = Stopwatch("load") if controls["profile"] else OFF
    out, resumed = _folder(controls["out"], controls["resume"])
    config = _configuration(options, controls["config_file"], resumed)
    if resumed is not None and resumed.finished:
        if _rank():
            return 0
        click.echo(f"{resumed.path} is finished", err=True)
        if not (resumed.path / "report.html").exists():  # killed between the summary and the report
            write_report_of(resumed, lambda line: click.echo(line, err=True))
        return _report(resumed.summary(), resumed.path, controls["as_json"])
    own = own_names(options["space"] or "", *options.get("costs", ()), *options["budgets"])
    with working(f"loading {config.data}", controls["quiet"]):
        job = prepare(config, own)
    if dry_run:
        return _dry_run(job, controls["as_json"])
    try:
        result = _carry_out(job, out, controls, watch)
    except Interrupted:
        click.echo(f"interrupted; go on with: budgetnet {_command(job, own)} --resume --out {out}", err=True)
        return 130
    finally:
        Processes.leave()
    if _rank():
        return 0 if result.summary.met else 3
    if isinstance(watch, Stopwatch) and not controls["as_json"]:
        _print_profile(watch)
    return _report(result.summary, out, controls["as_json"])


def _controls(options: dict[str, Any]) -> dict[str, Any]:
    """Takes what does not change the result out of the options, and the model as the space."""
    model = options.pop("model", None)
    if model is not None and options["space"] is not None:
        raise UserError(f"--model {model} and --space {options['space']} are both given; leave one of them out")
    options["space"] = model or options["space"]
    names = ("out", "resume", "lr_scale", "config_file", "track", "profile", "quiet", "as_json")
    controls = {name: options.pop(name) for name in names}
    return {**controls, "quiet": controls["quiet"] or bool(_rank())}


def _carry_out(job: Job, out: Path, controls: dict[str, Any], watch: Untimed = OFF) -> Result:
    """Executes a job so that Ctrl-C saves its state."""
    with Stop(out) as stop:
        settings = Options(
            quiet=controls["quiet"],
            resume=controls["resume"],
            lr_scale=controls["lr_scale"],
            sinks=[TensorBoard(out / "tensorboard")] if controls["track"] and not _rank() else [],
            should_stop=stop.asked,
            say=lambda line: click.echo(line, err=True),
            profiled=_ignored if controls["quiet"] or controls["as_json"] else _print_reach,
            watch=watch,
        )
        return execute(job, out, settings)


def _search_family(family: Sequence[str], options: dict[str, Any], dry_run: bool) -> int:
    """A network for each of several budgets, in folders below `--out`; finished ones are kept."""
    if options["budgets"]:
        raise UserError("--budget and --budgets are both given; write every network's budgets behind --budgets")
    controls = _controls(options)
    out = controls["out"] or new_folder()
    own = own_names(options["space"] or "", *options["costs"], *(part for text in family for part in parts_of(text)))

    def prepared(text: str, where: Path) -> Job:
        before = RunFolder(where) if RunFolder(where).exists else None
        config = _configuration({**options, "budgets": parts_of(text)}, controls["config_file"], before)
        with working(f"loading {config.data}", controls["quiet"]):
            job = prepare(config, own)
        return replace(job, recipe=sharing(job.recipe, out))

    def run(text: str, where: Path) -> Summary:
        folder = RunFolder(where)
        if folder.exists and not controls["resume"]:
            raise UserError(f"{out} holds such networks already; go on with them by --resume, or choose another --out")
        if folder.finished:
            return folder.summary()
        click.echo(f"{text}: {where}", err=True)
        return _carry_out(prepared(text, where), where, controls).summary

    if dry_run:
        members = member_folders(family, out).items()
        return max([_dry_run(prepared(text, where), controls["as_json"]) for text, where in members])
    try:
        summaries = run_family(family, out, run)
    except Interrupted:
        click.echo(f"interrupted; go on with the same command, --resume and --out {out}", err=True)
        return 130
    _print_family(summaries, out, controls["as_json"])
    return 0 if all(summary.met for summary in summaries) else 3


def _print_family(summaries: Sequence[Summary], out: Path, as_json: bool) -> None:
    """The networks of a family: what each costs and scores, and the full network before."""
    if as_json:
        print_json([summary.to_json() for summary in summaries])
        return
    table = plain_table("budget", "value", "used", "score", "certified", right=("value", "used"))
    for row in curve(summaries):
        table.add_row(*row)
    print_table(table)
    if (before := summaries[0].before) is not None:
        known = (("validation", before.validation_score), ("test", before.test_score))
        scores = ", ".join(f"{part} {summaries[0].metric.show(score)}" for part, score in known if score is not None)
        click.echo(
            f"before: {scores}; {show(before.macs, 'macs')} multiply-adds, {show(before.params, 'params')} parameters"
        )
    click.echo(f"{minutes(sum(summary.total_seconds for summary in summaries))}; every network has a folder in {out}")
    click.echo(f"report: {out / 'report.html'}")


def _print_profile(watch: Stopwatch) -> None:
    table = plain_table("phase", "part", "seconds", "share", right=("seconds", "share"))
    for row in watch.table():
        table.add_row(row["phase"], row["part"], f"{row['seconds']:.2f}", f"{row['share']:.1%}")
    print_table(table)


def _ignored(rows: Sequence[Profile], means: Sequence[float | None]) -> None:
    """Nobody wants to read the profile table."""


def _command(job: Job, own: frozenset[str]) -> str:
    """How the run goes on: code of the user's own has to be named again."""
    space = job.config.space
    if job.architecture is not None:
        return f"train {space}"
    mine = own_names(space)
    return " ".join(["search", *([f"--space {space}"] if mine else []), *(f"--cost {n}" for n in sorted(own - mine))])


def _folder(out: Path | None, resume: bool) -> tuple[Path, RunFolder | None]:
    """Where the run goes, and the run that is there already if it is to go on."""
    if out is None and resume:
        unfinished = [f for path in sorted(Path("runs").glob("*")) if (f := RunFolder(path)).exists and not f.finished]
        if len(unfinished) != 1:
            raise UserError(f"there are {len(unfinished)} unfinished runs in runs/; say which one with --out")
        return unfinished[0].path, unfinished[0]
    out = out or new_folder()
    folder = RunFolder(out)
    if folder.exists and not resume:
        if _rank():  # the first process has begun, and it alone checks the folder
            return out, None
        raise UserError(f"{out} holds a run already; go on with it by --resume, or choose another --out")
    return out, folder if folder.exists else None


def _rank() -> int | None:
    """The number of this process among those that torchrun has started; None if it has not."""
    return int(os.environ["RANK"]) if "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ else None


def _configuration(options: dict[str, Any], file: Path | None, resumed: RunFolder | None) -> Config:
    """Defaults, then the file, then the command line; a resumed run stays as it was started."""
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    check_threads(given.get("threads"))
    if "max_time" in given:
        given["max_time"] = duration(given["max_time"])
    if "architecture" in given:
        given["budgets"] = ()
    if resumed is None:
        return from_mapping({**(from_toml(file) if file else {}), **given}, str(file or "the command line"))
    config = of_run(resumed)
    changeable = ("max_time", "threads", "data_root")
    for name, value in given.items():
        before = getattr(config, name)
        if name == "costs":
            continue  # they say which code may be loaded; the run's own list stays
        if name not in changeable and value != before:
            raise UserError(
                f"{resumed.path} was started with {name} {before}, not {value}; leave it out to go on, "
                "or choose another --out"
            )
    return from_mapping({**config.to_dict(), **{k: v for k, v in given.items() if k in changeable}}, str(resumed.path))


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a run to save and stop: Ctrl-C, the end of a job, the end of a terminal session."""


class Stop:
    """The first Ctrl-C asks the loop to save and stop, the second one stops at once."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.stopping, self.since = False, 0.0

    def asked(self) -> bool:
        return self.stopping

    def __enter__(self) -> Stop:
        self.before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.stopping and not (_rank() is not None and time.monotonic() - self.since < FORWARDED):
            raise KeyboardInterrupt
        if not self.stopping:
            self.since = time.monotonic()
            click.echo(f"\nsaving the state in {self.out} …", err=True)
        self.stopping = True

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _dry_run(job: Job, as_json: bool) -> int:
    rows = profile(job.budgets, job.config.seed)
    feasible = all(row.satisfiable for row in rows)
    checked = check_job(job) if feasible else None
    means: list[float | None] = checked.means if checked else [None] * len(rows)
    seconds = estimated_seconds(job, checked) if checked else None
    if as_json:
        budgets = [_profile_values(row, mean) for row, mean in zip(rows, means, strict=True)]
        print_json({"space": job.net.name, "budgets": budgets, "estimated_seconds": seconds})
    else:
        _print_reach(rows, means)
        if seconds is not None:
            click.echo(f"estimated time: {minutes(seconds)} on this machine")
    return 0 if feasible else 2


def _print_reach(rows: Sequence[Profile], means: Sequence[float | None]) -> None:
    """What the budgets leave of the space."""
    shown = plain_table("budget", "smallest", "full", "expected at the start", "satisfiable")
    for row, mean in zip(rows, means, strict=True):
        least = row.budget.show(row.smallest) + ("" if row.exact else " (found)")
        start = "" if mean is None else row.budget.show(mean)
        answer = "yes" if row.satisfiable else "no"
        shown.add_row(row.budget.text, least, row.budget.show(row.full), start, answer)
    print_table(shown)


def _profile_values(row: Profile, mean: float | None) -> dict[str, Any]:
    return {
        "budget": row.budget.text,
        "cost": row.budget.name,
        "unit": row.budget.meter.unit,
        "maximum": row.budget.maximum,
        "smallest": row.smallest,
        "exact": row.exact,
        "full": row.full,
        "expected": mean,
        "satisfiable": row.satisfiable,
    }


def _report(summary: Summary, folder: Path, as_json: bool) -> int:
    if as_json:
        print_json(summary.to_json())
    else:
        print_answer(summary, folder)
    return 0 if summary.met else 3
