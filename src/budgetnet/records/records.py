"""What happened in a run, as values: one `Record` per step, epoch, phase or candidate, and the sinks that take them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

from budgetnet.errors import UserError
from budgetnet.naming.files import Missing, parse_json, read_lines
from budgetnet.naming.values import typed

KINDS = {
    "phase": "a phase begins: its `steps` and `epochs`",
    "step": "means over the steps since the record before: `loss`, the metric by its name, `lr`, `cost/…`, `lambda/…`",
    "epoch": "means over an epoch, with `validation_loss` and `validation_` metric where an architecture is fixed",
    "candidate": "an architecture that was evaluated on shared weights: its validation loss and metric",
    "racer": "a candidate after a turn of the race: who proposed it, its costs, the loss it is judged by or its fault",
    "chosen": "the architecture that is trained to the end: its costs",
}
"""The kinds of records that this version writes, and what their values are. Readers pass over other kinds."""

TIME_FIELDS = frozenset({"time", "seconds"})
"""The only fields in which an interrupted and resumed run differs from one that was never interrupted."""


@dataclass(frozen=True)
class Record:
    """One observation. `values` are flat: `loss`, `entropy`, `cost/macs`, `lambda/macs`, `probabilities`, …"""

    kind: str
    phase: str
    epoch: int
    step: int
    time: float
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line of `records.jsonl`."""
        head = {"kind": self.kind, "phase": self.phase, "epoch": self.epoch, "step": self.step, "time": self.time}
        return json.dumps({**head, **finite(self.values)}, allow_nan=False)

    @staticmethod
    def from_json(line: str, where: str = "a record") -> Record:
        """The record of a line; a line that is torn or of another shape is a `UserError`."""
        return Record.from_value(parse_json(line, where), where)

    @staticmethod
    def from_value(value: Any, where: str) -> Record:
        """The record in a plain value; what is not in the head of a record is one of its values."""
        fields = {key: value[key] for key in HEAD if key in value} if isinstance(value, Mapping) else value
        head = typed(fields, Record, where)
        return dataclasses.replace(head, values={key: item for key, item in value.items() if key not in HEAD})


HEAD = frozenset(("kind", "phase", "epoch", "step", "time"))
"""The fields that every record has."""


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values without those that JSON has no word for, such as a loss that has overflowed."""
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


class Sink(Protocol):
    """Takes records as they come. Any object with these two methods will do."""

    def write(self, record: Record) -> None:
        """Takes one record."""
        ...

    def close(self) -> None:
        """Nothing comes after this."""
        ...


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """Keeps it."""
        self.records.append(record)

    def close(self) -> None:
        """Nothing to close."""


class JsonLines:
    """Appends records to a file; a checkpoint remembers `position`, so that a resumed run goes on from there."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._file: IO[bytes] = os.fdopen(os.open(path, flags, 0o666), "r+b")
            position = _last_line_end(self._file, position)
            self._file.truncate(position)
            self._file.seek(position)

    @property
    def position(self) -> int:
        """The length of the file, safely on disk."""
        with self._explained():
            self._file.flush()
            os.fsync(self._file.fileno())
            return self._file.tell()

    def write(self, record: Record) -> None:
        """Appends a line. Lines reach the disk in time for people who watch; a checkpoint waits for them."""
        with self._explained():
            self._file.write(record.to_json().encode() + b"\n")
            if record.kind != "step":
                self._file.flush()

    def close(self) -> None:
        """Flushes and closes."""
        with self._explained():
            self._file.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{self._path} cannot be written ({error.strerror or error}); the last checkpoint is whole: make room "
                "there and resume"
            ) from error


def _last_line_end(file: IO[bytes], position: int) -> int:
    """Where a resumed run goes on: a file that is shorter than its checkpoint says ends with its last whole line."""
    if position <= file.seek(0, os.SEEK_END):
        return position
    file.seek(0)
    return file.read().rfind(b"\n") + 1


class Fan:
    """Passes each record to several sinks, and closes them all."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = tuple(sinks)

    def write(self, record: Record) -> None:
        """To each sink in turn."""
        for sink in self.sinks:
            sink.write(record)

    def close(self) -> None:
        """Closes each sink."""
        for sink in self.sinks:
            sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class Tally:
    """Weighted sums of what the steps report, for the means of an interval or an epoch."""

    sums: dict[str, float] = field(default_factory=dict)
    weight: float = 0.0

    def add(self, values: Mapping[str, float], weight: float) -> None:
        """One step's values."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + weight * value
        self.weight += weight

    def take(self) -> dict[str, float]:
        """The means, and a fresh start."""
        means = {name: total / self.weight for name, total in self.sums.items()} if self.weight else {}
        self.sums, self.weight = {}, 0.0
        return means


def read(path: Path) -> tuple[list[Record], bool]:
    """Reads the records of a run.

    Args:
        path: The file `records.jsonl` of a run folder; it may be missing, but not be a symbolic link.

    Returns:
        The records up to the first line that is torn, as a killed run leaves it, and whether there was no such line.
    """
    found: list[Record] = []
    try:
        values, whole = read_lines(path, follow=False)
    except Missing:
        return found, False
    for value in values:
        try:
            found.append(Record.from_value(value, str(path)))
        except UserError:
            return found, False
    return found, whole
