"""The files of a run as a value, read with patience: one that was killed lacks some, or ends in a torn line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.pictures.examples import EXAMPLES, KINDS, picture_file
from budgetnet.records import records
from budgetnet.records.records import Record

MARKS = ("config.json", "records.jsonl")
"""A folder with one of these is a run."""

LARGEST = 64 * 2**20
"""Bytes of a file that are still read: a run of 300 epochs writes a few megabytes."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """Everything that a report needs to know about a run. What is missing is empty, what is broken is in `problems`."""

    path: Path
    config: Json
    records: tuple[Record, ...]
    whole: bool
    archive: tuple[Json, ...]
    architecture: str
    summary: Json
    certificate: Json
    data: Json
    problems: tuple[str, ...]
    pictures: tuple[Mapping[str, bytes], ...] = ()
    """Of each example of a segmentation, the PNG files by what they show; read only if all are there."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def settings(self) -> Json:
        """The configuration of the run itself, without versions and machine."""
        return mapping(self.config.get("config"))

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return bool(self.summary)

    @property
    def searched(self) -> bool:
        """Whether this run looks for an architecture; others train a given one and serve as baselines."""
        return any(record.phase in ("warm-up", "search") for record in self.records) or bool(self.archive)


def read_run(path: Path) -> RunFiles:
    """Reads a run folder; one that is no run is refused."""
    if not any((path / mark).is_file() for mark in MARKS):
        raise UserError(
            f"{str(path)!r} is not a run folder: it holds neither {' nor '.join(MARKS)}; "
            "name the folder that `budgetnet search --out` wrote"
        )
    reader = _Reader(path)
    lines, whole = reader.records()
    pictures = reader.pictures()
    return RunFiles(
        path,
        reader.mapping("config.json"),
        tuple(lines),
        whole,
        tuple(reader.lines("archive.jsonl")),
        reader.text("architecture.json"),
        reader.mapping("summary.json"),
        reader.mapping("certificate.json"),
        reader.mapping("data.json"),
        tuple(reader.problems),
        tuple(pictures),
    )


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders that paths name: themselves, or the runs inside a folder of runs."""
    found: list[Path] = []
    for path in paths:
        inside = [] if is_run(path) or not path.is_dir() else sorted(child for child in path.iterdir() if is_run(child))
        found += inside or [path]
    return list(dict.fromkeys(found))


def is_run(path: Path) -> bool:
    """Whether a folder holds a run."""
    return any((path / mark).is_file() for mark in MARKS)


def mapping(value: Any) -> Json:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


class _Reader:
    """Reads the files of one folder and nothing else: a link that leads out of it counts as broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[str] = []

    def records(self) -> tuple[list[Record], bool]:
        path = self._inside("records.jsonl")
        return records.read(path) if path else ([], False)

    def text(self, name: str) -> str:
        path = self._inside(name)
        return path.read_text(encoding="utf-8", errors="replace") if path else ""

    def mapping(self, name: str) -> Json:
        text = self.text(name)
        if not text:
            return {}
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, Mapping):
            self.problems.append(f"{name} is not whole")
        return mapping(value)

    def pictures(self) -> list[Mapping[str, bytes]]:
        found: list[Mapping[str, bytes]] = []
        for number in range(1, EXAMPLES + 1):
            files = {kind: self._inside(picture_file(number, kind)) for kind in KINDS}
            whole = {kind: path.read_bytes() for kind, path in files.items() if path}
            found += [whole] if len(whole) == len(KINDS) else []
        return found

    def lines(self, name: str) -> list[Json]:
        """Objects, one per line; a torn line ends the reading."""
        found: list[Json] = []
        for line in self.text(name).splitlines():
            try:
                value = json.loads(line)
            except ValueError:
                self.problems.append(f"{name} ends in a torn line")
                break
            found.append(mapping(value))
        return found

    def _inside(self, name: str) -> Path | None:
        path = self.folder / name
        if not path.is_file():
            return None
        if not path.resolve().is_relative_to(self.folder.resolve()):
            self.problems.append(f"{name} leads out of the run folder and was not read")
            return None
        if path.stat().st_size > LARGEST:
            self.problems.append(f"{name} is larger than {LARGEST // 2**20} MB and was not read")
            return None
        return path
