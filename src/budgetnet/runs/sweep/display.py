"""One display for all runs of a sweep, read from their records: live on a terminal, a line per ending elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.pictures.report.numbers import number
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import Record
from budgetnet.records.results import MetricDescription
from budgetnet.runs.sweep.engine import FINISHED, Ending

REFRESH = 2.0
"""A second."""
SHOWN = 12
"""Runs at a time."""
LONGEST = 1000
"""Characters of a message that are printed."""
SILENT_SECONDS = 600.0
"""Records that have not grown for so long are of a run that waits for its turn."""


class Follower:
    """The records of a run that goes on, each line read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._total = 0.0
        self.last: Record | None = None
        self.validation: float | None = None
        self.metric = MetricDescription()

    @property
    def share(self) -> float:
        """Of the phase that the run is in."""
        return min(1.0, self.last.step / self._total) if self.last and self._total else 0.0

    def follow(self) -> None:
        """Reads what is new. A resumed run begins again at its checkpoint, in a shorter file."""
        try:
            size = self._path.lstat().st_size
            handle = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                file.seek(self._position if size >= self._position else 0)
                lines = file.read().splitlines(keepends=True)
                self._position = file.tell() - (len(lines[-1]) if lines and not lines[-1].endswith(b"\n") else 0)
        except OSError:
            return
        for line in lines:
            if line.endswith(b"\n"):
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            record = Record.from_json(line.decode())
        except ValueError:  # torn, or not UTF-8
            return
        self.last = record
        if record.kind == "phase":
            self.metric = RunFolder(self._path.parent).metric()
            self._total = number(record.values.get("steps")) or 0.0
        found = number(record.values.get(f"validation_{self.metric.name}"))
        self.validation = self.validation if found is None else found

    def active(self) -> bool:
        """Whether the run seems to be going on."""
        try:
            return self.last is not None and time.time() - self._path.stat().st_mtime < SILENT_SECONDS
        except OSError:
            return False


class Display:
    """Runs that go on with phase, share and validation score; how many have ended, and how."""

    def __init__(self, out: Path, names: Sequence[str], finished: int, quiet: bool = False) -> None:
        self._console = Console(stderr=True, highlight=False, quiet=quiet)
        self._out = out
        self._open = {name: Follower(out / name / "records.jsonl") for name in names}
        self._done, self._total = finished, finished + len(names)
        self._unwell = 0
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            refresh_per_second=REFRESH,
            transient=True,
            auto_refresh=self._console.is_terminal and not quiet,
        )

    def tell(self, ending: Ending) -> None:
        """An order has ended."""
        if ending.name not in self._open:
            return
        follower, folder = self._open.pop(ending.name), RunFolder(self._out / ending.name)
        follower.follow()
        self._done += ending.state == FINISHED
        self._unwell += ending.state != FINISHED
        # The records have looks at a part of the validation data; the summary has all of it.
        found = follower.validation
        with suppress(UserError):  # a run without a summary has the score of its records
            found = folder.summary().validation_score
        score = "" if found is None else f", validation {follower.metric.show(found, 1)}"
        what = printable(ending.message or f"{ending.state}{score}", LONGEST)
        self._console.print(f"{self._done}/{self._total} {ending.name}: {what}", markup=False, soft_wrap=True)

    def _render(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        running = []
        for name, follower in list(self._open.items()):
            follower.follow()
            if follower.active():
                running.append((name, follower))
        for name, follower in running[:SHOWN]:
            score = "" if follower.validation is None else f"validation {follower.metric.show(follower.validation, 1)}"
            phase = follower.last.phase if follower.last else ""
            state = Text(f"{printable(phase, 24)} {follower.share:.0%}")
            table.add_row(Text(name), ProgressBar(1.0, follower.share, width=16), state, score)
        unwell = f", {self._unwell} not" if self._unwell else ""
        table.add_row(f"{self._done} of {self._total} runs finished{unwell}")
        return table

    def __enter__(self) -> Self:
        if self._live.auto_refresh:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()
