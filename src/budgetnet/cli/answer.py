"""What a finished run says on the console: one table, how it was measured, and what to type next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from budgetnet.budgets.certificate import BudgetEntry, Certificate
from budgetnet.cli.options import plain_table, print_table
from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import Before, BudgetResult, Summary
from budgetnet.runs.stored import OWN
from budgetnet.spaces import SPACES

FILES = ("weights.safetensors", "network.pt2", "network.int8.onnx", "report.html")
"""Files of a run folder whose sizes are said."""

Cells = tuple[str, str, str, str, str, str]
"""What, its maximum, before, now, the share used, whether it is met."""


def print_answer(summary: Summary, folder: Path) -> None:
    """The answer: is every budget met, how good is the network, how large is it; how that is known; what to do next."""
    certificate = RunFolder(folder).certificate()
    _print_rows(list(_rows(summary, folder, certificate)))
    if summary.before is not None:
        click.echo(f"narrowed or dropped: {'; '.join(map(printable, summary.before.removed)) or 'nothing'}")
        click.echo(" ".join(map(printable, summary.before.notes())))
    for warning in summary.warnings:
        click.echo(f"note: {warning}")
    click.echo(_time(summary))
    if summary.budgets and certificate is not None:
        for line in (*map(_evidence, certificate.budgets), *certificate.closing):
            click.echo(line)
    edges = f"{len(summary.architecture)} edges of {printable(summary.space)}"
    click.echo(f"{edges}; everything is in {folder}\n\nnext:")
    commands = _commands(summary, folder)
    width = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        click.echo(f"  {command:<{width}}  # {purpose}")


def _print_rows(rows: list[Cells]) -> None:
    """One table; columns that no row fills are left out."""
    columns = ("budget" if any(row[1] for row in rows) else "", "maximum", "before", "value", "used", "met")
    filled = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    names = [columns[place] for place in filled]
    table = plain_table(*names, right=("maximum", "before", "value", "used"))
    for row in rows:
        table.add_row(*(row[place] for place in filled))
    print_table(table)


def _rows(summary: Summary, folder: Path, certificate: Certificate | None) -> Iterator[Cells]:
    before = summary.before
    yield from (_budget_row(budget, before) for budget in summary.budgets)
    if certificate is not None and certificate.int8 is not None:
        drop = certificate.int8
        yield "int8 drop", f"{drop.allowed:g} points", "", f"{drop.drop:.2f} points", "", _met(drop.holds)
    yield from _score_rows(summary)
    told = [budget.cost for budget in summary.budgets]
    for name, unit, value in (("multiply-adds", "macs", summary.macs), ("parameters", "params", summary.params)):
        if unit not in told:
            yield name, "", show(getattr(before, unit), unit) if before else "", show(value, unit), "", ""
    for name, text in summary.files():
        yield name, "", "", text, "", ""
    for name in FILES:
        if (folder / name).is_file():
            was = show(before.file_bytes, "B") if before and name == FILES[0] else ""
            yield name, "", was, show((folder / name).stat().st_size, "B"), "", ""


def _budget_row(budget: BudgetResult, before: Before | None) -> Cells:
    was = before.costs.get(budget.cost) if before else None
    return (
        budget.text or budget.cost,
        show(budget.maximum, budget.unit),
        "" if was is None else show(was, budget.unit),
        show(budget.value, budget.unit),
        f"{budget.share:.1%}",
        _met(budget.met),
    )


def _score_rows(summary: Summary) -> Iterator[Cells]:
    metric, before = summary.metric, summary.before
    scores = (
        (f"validation {metric.label}", summary.validation_score, before.validation_score if before else None),
        (f"test {metric.label}", summary.test_score, before.test_score if before else None),
        (f"int8 validation {metric.label}", summary.int8_validation, None),
        (f"int8 test {metric.label}", summary.int8_test, None),
    )
    yield from ((name, "", metric.show(was), metric.show(now), "", "") for name, now, was in scores if now is not None)
    if metric.name != "mean_iou":
        overlaps = (("validation", summary.validation_mean_iou), ("test", summary.test_mean_iou))
        yield from (
            (f"{part} mean IoU", "", "", f"{value:.2%}", "", "") for part, value in overlaps if value is not None
        )


def _met(holds: bool) -> str:
    return "yes" if holds else "NO"


def _evidence(entry: BudgetEntry) -> str:
    """How a budget was measured, without the numbers that the table has."""
    parts = [part for part in (entry.bound, entry.told.removeprefix("method ")) if part]
    return f"{printable(entry.cost)}: {', '.join(parts)}"


def _time(summary: Summary) -> str:
    spent = {**summary.phases, **{name: value for name, value in summary.spent.items() if name != "training"}}
    parts = ", ".join(f"{printable(name)} {minutes(seconds)}" for name, seconds in spent.items() if seconds >= 0.5)
    return f"{minutes(summary.total_seconds)}{f': {parts}' if parts else ''}"


def minutes(seconds: float) -> str:
    """A duration for people."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _commands(summary: Summary, folder: Path) -> list[tuple[str, str]]:
    """Three commands that work on this run, and what they are for."""
    run = shlex.quote(str(folder))
    found = [(f"budgetnet export {run} -o model.onnx", "for ONNX Runtime, compared with its source")]
    if summary.budgets:
        found.append((f"budgetnet certify {run}{_own_code(folder)}", "measures every budget again, here and now"))
    if _takes_images(folder):
        found.append((f"budgetnet predict {run} photo.png", "labels an image, or a folder of them"))
    found.append((f"budgetnet draw {run} -o network.svg", "a picture of what was kept"))
    return [*found, (f"budgetnet show {run}", "says all of this again")][:3]


def _takes_images(folder: Path) -> bool:
    try:
        data = RunFolder(folder).data()
    except UserError:
        return False
    return len(data.input_shape) == 3 and data.scaling != "none" and bool(data.classes)


def _own_code(folder: Path) -> str:
    """Code of the user's own that `certify` must be told again, since no file may name it."""
    try:
        settings = RunFolder(folder).origin().config
    except UserError:
        return ""
    space = str(settings.get("space", ""))
    spaces = [] if space == OWN or space.partition(":")[0] in SPACES else [space]
    texts = [str(text) for name in ("costs", "budgets") for text in settings.get(name) or ()]
    costs = [name for text in texts if ":" in (name := re.split(r"[<≤(]", text)[0].strip())]
    options = [*(("--space", name) for name in spaces), *(("--cost", name) for name in dict.fromkeys(costs))]
    return "".join(f" {option} {shlex.quote(printable(name))}" for option, name in options)
