"""The folder of a run: the one way to read it, its files written whole or not at all, and one process at a time.

A run folder may come from anybody. Every file goes through the checked reader, no symbolic link inside the folder is
followed, and what is read is a value with a type. `RunFolder` refuses the first file that is wrong; `read_run` reads
all that can be read, for pages and tables about runs that were killed or damaged.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from budgetnet.budgets.certificate import Certificate
from budgetnet.errors import UserError
from budgetnet.naming import files
from budgetnet.naming.files import LARGEST_BINARY, TEMPORARY, Missing, write_file
from budgetnet.records import records
from budgetnet.records.records import Record
from budgetnet.records.results import Candidate, DataDescription, MetricDescription, Origin, Summary

LOCK_PAUSE = 0.1
"""Seconds between two tries to take the lock."""
MARKS = ("config.json", "records.jsonl")
"""A folder with one of these is a run."""

FOLDERS = ("checkpoints", "pictures")
"""The folders inside a run."""

T = TypeVar("T")
Json = Mapping[str, Any]


class RunFolder:
    """The files of a run. Reading one that is missing or wrong raises a `UserError` that names it.

    Args:
        path: The folder; it may be a symbolic link, what is inside may not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """The folder of the saved state."""
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        """Whether there is a summary, which is written last."""
        return _there(self.path / "summary.json")

    @property
    def exists(self) -> bool:
        """Whether there is a configuration, which is written first."""
        return _there(self.path / "config.json")

    def read_bytes(self, name: str, largest: int = LARGEST_BINARY) -> bytes:
        """The content of a file of this folder."""
        with self._explained(name):
            return files.read_bytes(self.path / name, largest, follow=False)

    def read_text(self, name: str) -> str:
        """The content of a text file of this folder."""
        with self._explained(name):
            return files.read_text(self.path / name, follow=False)

    def read_json(self, name: str) -> Any:
        """The plain value in a JSON file of this folder, for files that have no type of their own."""
        with self._explained(name):
            return files.read_json(self.path / name, follow=False)

    def summary(self) -> Summary:
        """The result, from summary.json."""
        return Summary.from_json(self.read_json("summary.json"), str(self.path / "summary.json"))

    def data(self) -> DataDescription:
        """What the run was trained on, from data.json."""
        return DataDescription.from_json(self.read_json("data.json"), str(self.path / "data.json"))

    def metric(self) -> MetricDescription:
        """What the scores of the run measure; accuracy if its description is missing or damaged."""
        try:
            return self.data().metric if _there(self.path / "data.json") else MetricDescription()
        except UserError:
            return MetricDescription()

    def origin(self) -> Origin:
        """How the run was started, from config.json."""
        return Origin.from_json(self.read_json("config.json"), str(self.path / "config.json"))

    def architecture(self) -> str:
        """The text of architecture.json; `Architecture.from_json` reads it for a graph."""
        return self.read_text("architecture.json")

    def certificate(self) -> Certificate | None:
        """The certificate, or None if there is no file."""
        path = self.path / "certificate.json"
        return Certificate.from_json(self.read_json(path.name), str(path)) if _there(path) else None

    def records(self) -> tuple[list[Record], bool]:
        """The records, and whether the file is there and whole."""
        return records.read(self.path / "records.jsonl")

    def archive(self) -> tuple[list[Candidate], bool]:
        """The evaluated architectures, and whether the file is whole; a run may have none."""
        path, found, metric = self.path / "archive.jsonl", list[Candidate](), self.metric().name
        try:
            values, whole = files.read_lines(path, follow=False)
            for number, value in enumerate(values, 1):
                found.append(Candidate.from_json(value, f"{path}, line {number}", metric))
        except Missing:
            return [], True
        return found, whole

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file of this folder."""
        write_file(self.path / name, (json.dumps(value, indent=1) + "\n").encode())

    def write_summary(self, summary: Summary) -> None:
        """Writes summary.json: from now on the run is finished."""
        self.write_json("summary.json", summary.to_json())

    def _refuse_link(self, name: str) -> None:
        """Refuses a link in place of a folder inside this one: it would lead reading and writing elsewhere."""
        if (self.path / name).is_symlink():
            raise UserError(
                f"{self.path / name} is a symbolic link, and none is followed inside a run folder; put the folder there"
            )

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        for parent in Path(name).parents[:-1]:
            self._refuse_link(str(parent))
        try:
            yield
        except Missing:
            raise Missing(
                f"{self.path} has no {name}; give the folder of a run, as `budgetnet runs` lists them"
            ) from None

    def _clean(self) -> None:
        """Removes what a killed process had not written to its end; nobody else is at work here."""
        for path in self.path.glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                path.unlink()

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Keeps other processes out of the folder, which is made if it is missing.

        Args:
            patience: Seconds to wait for another process that is at work there.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / ".lock", flags, 0o666)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written to ({error.strerror}); choose another --out") from None
        try:
            deadline = time.monotonic() + patience
            while not _taken(handle):
                if time.monotonic() >= deadline:
                    raise UserError(f"another process is at work in {self.path}; wait for it or choose another --out")
                time.sleep(LOCK_PAUSE)
            for inside in FOLDERS:
                self._refuse_link(inside)
            self._clean()
            yield
        finally:
            os.close(handle)


def _there(path: Path) -> bool:
    """Whether there is a file of any kind, a dangling link among them; one that is wrong is refused when it is read."""
    return os.path.lexists(path)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def new_folder(parent: Path = Path("runs")) -> Path:
    """The first `run-N` that is free."""
    return next(path for n in itertools.count(1) if not os.path.lexists(path := parent / f"run-{n}"))


@dataclass(frozen=True)
class RunFiles:
    """A run as far as it can be read. What is missing is empty or None; what is wrong is said in `problems`."""

    path: Path
    origin: Origin
    records: tuple[Record, ...] = ()
    whole: bool = False
    archive: tuple[Candidate, ...] = ()
    architecture: str = ""
    summary: Summary | None = None
    certificate: Certificate | None = None
    data: DataDescription | None = None
    graph: Any = None
    """What graph.json holds: the graph that was searched, and its counted costs."""
    problems: tuple[str, ...] = ()
    ended: bool = False
    """Whether there is a summary, be it damaged."""

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.resolve().name

    @property
    def settings(self) -> Json:
        """The configuration of the run itself, without versions and machine."""
        return self.origin.config

    @property
    def metric(self) -> MetricDescription:
        """What the scores of the run measure."""
        return self.data.metric if self.data else MetricDescription()

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, and its summary can be read."""
        return self.summary is not None

    @property
    def searched(self) -> bool:
        """Whether this run looks for an architecture; others train a given one and serve as baselines."""
        return any(record.phase in ("warm-up", "search") for record in self.records) or bool(self.archive)


def read_run(path: Path) -> RunFiles:
    """Reads as much of a run folder as there is.

    Args:
        path: The folder. One without a configuration and without records is refused.

    Returns:
        The run. A file that is missing, as while a run goes on, is no problem; one that is wrong is.
    """
    if not is_run(path):
        raise UserError(
            f"{str(path)!r} is not a run folder: it holds neither {' nor '.join(MARKS)}; "
            "name the folder that `budgetnet search --out` wrote"
        )
    folder, problems = RunFolder(path), list[str]()

    def tried(read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except Missing:
            return otherwise
        except UserError as error:
            problems.append(str(error))
            return otherwise

    no_records: tuple[list[Record], bool] = ([], False)
    no_archive: tuple[list[Candidate], bool] = ([], True)
    lines, whole = tried(folder.records, no_records)
    archive, archive_whole = tried(folder.archive, no_archive)
    if not archive_whole:
        problems.append(f"{path / 'archive.jsonl'} ends in a torn line")
    return RunFiles(
        path,
        tried(folder.origin, Origin({})),
        tuple(lines),
        whole,
        tuple(archive),
        tried(folder.architecture, ""),
        tried(folder.summary, None),
        tried(folder.certificate, None),
        tried(folder.data, None),
        tried(lambda: folder.read_json("graph.json"), None),
        tuple(problems),
        folder.finished,
    )


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, damaged or not."""
    return path.is_dir() and any(_there(path / mark) for mark in MARKS)


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """The run folders that paths name: themselves, or the runs inside a folder of runs."""
    found: list[Path] = []
    for path in paths:
        inside = [] if is_run(path) else runs_in(path)
        found += inside or [path]
    return list(dict.fromkeys(found))


def runs_in(folder: Path) -> list[Path]:
    """The runs in a folder of runs, by name; a folder that vanishes meanwhile has none."""
    try:
        return sorted(child for child in folder.iterdir() if is_run(child))
    except OSError:
        return []
