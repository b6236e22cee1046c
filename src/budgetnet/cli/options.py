"""What several commands share: reading shapes, printing JSON and tables."""

from __future__ import annotations

import json
import os
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.records.results import ACCURACY, MetricDescription

THREADS_PER_CORE, THREADS = 16, 64
"""The most threads that a command line may ask for: so many a core, and so many on any machine."""


def check_threads(threads: int | None) -> None:
    """Refuses a number of threads that this machine has no use for; a run of a larger machine opens all the same."""
    most = max(THREADS, THREADS_PER_CORE * (os.cpu_count() or 1))
    if threads is not None and threads > most:
        raise UserError(f"--threads {threads} are too many for the {os.cpu_count()} cores here; give at most {most}")


def print_json(value: Any) -> None:
    """One object on standard output."""
    click.echo(json.dumps(value, indent=2))


def print_table(table: Table) -> None:
    """An aligned table, at full width where the output is not a terminal."""
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=160)
    console.print(table)


class PlainTable(Table):
    """A table whose cells are texts of others: no markup, no characters that act on a terminal."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Adds a row of texts."""
        super().add_row(*(Text(printable(cell)) for cell in cells), **options)


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> PlainTable:
    """A table without frame."""
    table = PlainTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def input_shape(text: str) -> tuple[int, ...]:
    """`3x32x32` as a shape."""
    try:
        shape = tuple(int(part) for part in text.lower().replace("×", "x").split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise UserError(f"the input {text!r} is not a shape; write channels, height and width as 3x32x32")
    return shape


def whole_numbers(text: str, what: str) -> list[int]:
    """`1,2,4` as positive numbers."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise UserError(f"{what} {text!r} must be positive whole numbers; write them as 1,2,4")
    return numbers


def named_score(metric: MetricDescription, score: float | None) -> str:
    """A score in a table whose rows may have different metrics: with its name, unless it is accuracy."""
    text = metric.show(score)
    return f"{metric.label} {text}" if text and metric.name != ACCURACY else text
