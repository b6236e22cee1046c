"""What happened in a run, as values: one `Record` per step, epoch, phase or candidate, and the sinks that take them."""

from __future__ import annotations

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
    def from_json(line: str) -> Record:
        """The record of a line; ValueError or KeyError if it is torn."""
        value = json.loads(line)
        head = {name: value.pop(name) for name in ("kind", "phase", "epoch", "step", "time")}
        return Record(**head, values=value)


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


class JsonLines:
    """Appends records to a file; a checkpoint remembers `position`, so that a resumed run goes on from there."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("r+b" if path.exists() else "w+b")
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
                f"{self._path} cannot be written ({error.strerror}); the last checkpoint is whole: make room there "
                "and resume"
            ) from error


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
    """The records of a file, and whether it is whole: a line torn by a killed run ends the reading."""
    records: list[Record] = []
    if not path.exists():
        return records, False
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                records.append(Record.from_json(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                return records, False
    return records, True
