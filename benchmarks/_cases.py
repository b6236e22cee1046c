"""One case of the fuzzer: a command, or a reader in Python, and whatever it does that it should not."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import budgetnet
from budgetnet.cli import LOG
from budgetnet.cli import main as command_line
from budgetnet.errors import UserError
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import from_mapping, from_toml, of_run
from budgetnet.runs.job import Checked, Job, check_job, make_runner, make_trainer, prepare
from budgetnet.runs.resume import restore
from budgetnet.runs.sweep.plan import make_plan

CODES = (0, 1, 2, 3, 130)
LIMIT = 20.0
"""Seconds of computing that a case may take."""
LONGEST = 180.0
"""Seconds by the clock, for a case that waits; a busy machine takes many times the seconds of computing."""


class TooLong(BaseException):
    """A case did not end in time; not an `Exception`, so that nothing on its way can catch it."""


@dataclass
class Found:
    """What a series of cases showed."""

    cases: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def report(self) -> dict[str, Any]:
        """For a result file."""
        return {
            "cases": self.cases,
            "codes": dict(sorted(self.codes.items())),
            "faults": len(self.faults),
            "first_faults": self.faults[:20],
            "slowest_seconds": round(self.slowest, 2),
        }


@contextlib.contextmanager
def limited(seconds: float = LIMIT) -> Iterator[None]:
    """Ends what takes longer."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TooLong

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, LONGEST))
    before = {number: signal.signal(number, end) for number, _, _ in timers}
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


class Listener(logging.Handler):
    """Hears of every error that the command line had not expected, be it told in a sentence or not."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what was raised, and where in this package."""
        error = record.exc_info[1] if record.exc_info else None
        frames = traceback.extract_tb(error.__traceback__) if error is not None else []
        inside = [frame for frame in frames if "budgetnet" in frame.filename]
        place = f"{inside[-1].filename[-40:]}:{inside[-1].lineno}" if inside else "?"
        self.heard.append(f"{type(error).__name__}: {error!s:.200} ({place})")

    def __enter__(self) -> Listener:
        self._level = LOG.level
        LOG.setLevel(logging.DEBUG)
        LOG.addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        LOG.removeHandler(self)
        LOG.setLevel(self._level)


@functools.cache
def _job(original: Path) -> tuple[Job, Checked]:
    """The job of a run that is whole, made once; damaged checkpoints are read into it."""
    job = prepare(of_run(RunFolder(original)))
    return job, check_job(job)


def _restore(run: Path) -> None:
    """Goes on from the checkpoints of a run, without the training."""
    job, checked = _job(run.parents[2] / ORIGINAL)
    restore(RunFolder(run), job, lambda: make_runner(job, checked, make_trainer(job)), lambda line: None)


def _settings(file: Path) -> None:
    """Settings of a run and of a sweep, without their runs."""
    given = from_toml(file)
    with contextlib.suppress(UserError):
        from_mapping(dict(given), str(file))
    make_plan(dict(given), str(file))


ORIGINAL = Path("made") / "run"
"""Where the whole run is, beside the folder in which cases work."""
READERS: dict[str, Callable[[Path], object]] = {"load": budgetnet.load, "restore": _restore, "settings": _settings}
"""Readers in Python; they take a path."""


def quietly(words: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr of a command in this process; a reader in Python that refuses counts as code 2."""
    if words[0] in READERS:
        try:
            READERS[words[0]](Path(words[1]))
        except UserError as error:
            return 2, str(error)
        return 0, ""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command_line(list(words))
    return code, err.getvalue()


def run_case(words: Sequence[str], found: Found, what: str) -> None:
    """Runs one case and counts what it shows."""
    start = time.perf_counter()
    found.cases += 1
    try:
        with Listener() as listener, limited():
            code, said = quietly(words)
    except TooLong:
        found.faults.append(f"{what}: more than {LIMIT:g} s of computing, or {LONGEST:g} s")
        return
    except BaseException as error:  # the program itself may not end
        found.faults.append(f"{what}: {type(error).__name__}: {error!s:.200}")
        return
    found.slowest = max(found.slowest, time.perf_counter() - start)
    found.codes[str(code)] += 1
    if code not in CODES or listener.heard or "Traceback" in said:
        found.faults.append(f"{what}: {code}, {said.strip()[-300:]} {' '.join(listener.heard)}")
        if "--where" in sys.argv:
            print(quietly([*words, "--debug"])[1][-1500:])
