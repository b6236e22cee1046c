"""The console as a sink of records: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from budgetnet.budgets.budget import Budget
from budgetnet.records.records import Record
from budgetnet.records.results import MetricDescription


class ConsoleSink:
    """Shows phase, epoch, loss, metric, cost against budget, entropy and the time left."""

    def __init__(
        self, budgets: Sequence[Budget], console: Console | None = None, metric: MetricDescription | None = None
    ) -> None:
        self.metric = metric or MetricDescription()
        self.budgets = {budget.name: budget for budget in budgets}
        self.console = console or Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.progress.start()
        self.task: TaskID | None = None
        self._last = ""

    def write(self, record: Record) -> None:
        """Shows one record."""
        if record.kind == "phase":
            self._begin(record)
            return
        status, place = self._status(record), _place(record)
        if self.task is not None:
            self.progress.update(self.task, completed=record.step, status=status, description=place)
        if record.kind == "epoch":
            self._say(f"{place:<18} {_clock(record.time)}  {status}")

    def _begin(self, record: Record) -> None:
        if self.task is not None:
            self.progress.remove_task(self.task)
        total = record.values.get("steps")
        self.task = self.progress.add_task(record.phase, total=total, status="")
        epochs = record.values.get("epochs")
        what = f"{epochs:.3g} epochs, {total} steps" if epochs else f"{total} {record.values.get('unit', 'candidates')}"
        racers = record.values.get("racers")
        self._say(f"{record.phase:<8} {f'{racers} candidates, ' if racers else ''}{what}")

    def _say(self, line: str) -> None:
        if line != self._last:
            self.console.print(line, markup=False, soft_wrap=True)
        self._last = line

    def _status(self, record: Record) -> str:
        values = record.values
        parts = []
        if "loss" in values:
            parts.append(f"loss {values['loss']:.3f}")
        name = self.metric.name
        if name in values and name != "loss":
            parts.append(f"{self.metric.label} {self.metric.show(values[name], 1)}")
        if f"validation_{name}" in values:
            parts.append(f"validation {self.metric.show(values[f'validation_{name}'], 1)}")
        for name, budget in self.budgets.items():
            if f"cost/{name}" in values:
                parts.append(f"{name} {budget.show(values[f'cost/{name}'])} of {budget.show()}")
            if f"predictor_error/{name}" in values:
                parts.append(f"predicted to {values[f'predictor_error/{name}']:.1%}")
        if "entropy" in values:
            parts.append(f"entropy {values['entropy']:.3f} bits")
        return ", ".join(parts)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        self.progress.stop()


@contextmanager
def working(message: str, quiet: bool = False) -> Iterator[None]:
    """Says on a terminal that something takes its time."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(message):
        yield


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))


def _place(record: Record) -> str:
    """`race 2/4 · epoch 1`: the phase, whose turn it is in a race, and the epoch of its own training."""
    racer, racers = (record.values.get(name) for name in ("racer", "racers"))
    whose = f" {racer}/{racers}" if racer and racers else ""
    return f"{record.phase}{whose} · epoch {record.epoch}" if record.epoch else f"{record.phase}{whose}"
