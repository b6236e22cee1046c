"""The folder of a run: its files, each written whole or not at all, and one process at a time."""

from __future__ import annotations

import fcntl
import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from budgetnet.errors import UserError
from budgetnet.naming.files import write_file

LOCK_PAUSE = 0.1


class RunFolder:
    """The files of a run. Every one of them is written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        """Where the state is."""
        return self.path / "checkpoints"

    @property
    def finished(self) -> bool:
        """The summary is written last."""
        return (self.path / "summary.json").exists()

    @property
    def exists(self) -> bool:
        """The configuration is written first."""
        return (self.path / "config.json").exists()

    def read_json(self, name: str) -> Any:
        """One of the JSON files."""
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UserError(
                f"{self.path} has no {name}; give the folder of a run, as `budgetnet runs` lists them"
            ) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} could not be read ({error}); restore it or run again") from None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file."""
        write_file(self.path / name, (json.dumps(value, indent=1) + "\n").encode())

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """One process at a time; the other one may have so many seconds to end."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = (self.path / ".lock").open("w")
        except OSError as error:
            raise UserError(f"{self.path} cannot be written to ({error.strerror}); choose another --out") from None
        with handle:
            deadline = time.monotonic() + patience
            while not _taken(handle):
                if time.monotonic() >= deadline:
                    raise UserError(f"another process is at work in {self.path}; wait for it or choose another --out")
                time.sleep(LOCK_PAUSE)
            yield


def _taken(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def new_folder(parent: Path = Path("runs")) -> Path:
    """The first `run-N` that is free."""
    return next(path for n in itertools.count(1) if not (path := parent / f"run-{n}").exists())
