"""Sweeps as processes of their own, and the processes that they start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.small_runs import TINY

Process = "subprocess.Popen[bytes]"
RUN = TINY[:-1]
"""A run in seconds; without --quiet."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def start_sweep(out: Path, *more: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
    """A sweep, which says what it says in a file beside its folder."""
    command = [sys.executable, "-m", "budgetnet", "sweep", *more, "--out", str(out)]
    with said(out).open("ab") as file:
        return subprocess.Popen(command, env=ENVIRONMENT, cwd=cwd, stdout=file, stderr=file, start_new_session=True)


def said(out: Path) -> Path:
    return out.with_suffix(".txt")


def wait_until(condition: Callable[[], Any], limit: float = 120) -> Any:
    """What the condition gives once it is true; an error when it takes too long."""
    deadline = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)
    return found


def children(parent: int) -> list[int]:
    """The ids of the processes that a process started and that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(path.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def begun(out: Path) -> list[Path]:
    """Runs that have saved a state and are not finished."""
    return [
        p.parent.parent for p in out.glob("*/checkpoints/*.checkpoint") if not (p.parents[1] / "summary.json").exists()
    ]


def timeless_table(out: Path) -> list[dict[str, Any]]:
    """The table without the one column that may differ."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in json.loads((out / "table.json").read_text())]


@contextmanager
def running(command: list[str], log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended at the end."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**ENVIRONMENT, **variables},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
