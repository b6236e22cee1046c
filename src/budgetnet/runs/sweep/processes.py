"""The engine of this machine: one process per order, cores divided among them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch

from budgetnet.errors import UserError
from budgetnet.runs.config import Config
from budgetnet.runs.sweep.engine import FAILED, INTERRUPTED, Asked, Ending, Order

COMMAND = ("-P", "-m", "budgetnet.runs.sweep.child")
"""The current folder is not on the path of a run, except while the user's own code is loaded."""
LOG = "log.txt"
"""In a run's folder: what its process said."""
RETRIES = 3
"""How often a process that was killed by a signal is started again."""
PAUSE = 0.1
"""Seconds between two looks at a process."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine:
    """Processes on this machine. Together they have as many threads as there are cores."""

    def __init__(self, workers: int = 1, threads: int = 1) -> None:
        self.slots = workers
        self.threads = threads

    def carry_out(self, orders: Sequence[Order], should_stop: Asked) -> Iterator[Ending]:
        """Each order's ending, as they come."""
        abandoned = threading.Event()
        settings = {"threads": self.threads, "cwd": str(Path.cwd())}
        with ThreadPoolExecutor(self.slots) as pool:
            waiting = [
                pool.submit(supervise, order.to_json(**settings), should_stop, abandoned.is_set) for order in orders
            ]
            try:
                for future in as_completed(waiting):
                    yield future.result()
            finally:
                abandoned.set()


def local_engine(configs: Sequence[Config], workers: int | None = None) -> LocalEngine:
    """An engine for these runs. It depends on all of them, so that a sweep that goes on divides the cores as before."""
    available, threads = cores(), max((config.threads or 1 for config in configs), default=1)
    if threads > available:
        raise UserError(f"{threads} threads for a run are more than the {available} cores here; lower --threads")
    if workers is None:
        on_gpu = torch.cuda.is_available() and any(config.device != "cpu" for config in configs)
        workers = 1 if on_gpu else min(available // threads, max(1, len(configs)))
    if not 0 < workers * threads <= available:
        raise UserError(
            f"{workers} workers of {threads} threads do not fit the {available} cores here; "
            f"give --workers 1 to {available // threads}"
        )
    return LocalEngine(workers, available // workers)


def supervise(text: str, should_stop: Asked, abandoned: Asked = lambda: False) -> Ending:
    """Carries out an order, in JSON, in a process of its own; one that was killed by a signal goes on in another."""
    order = json.loads(text)
    code = 0
    for _ in range(1 + RETRIES):
        if should_stop() or abandoned():
            return Ending(order["name"], INTERRUPTED)
        code, answer = _attend(order, text, should_stop, abandoned)
        if answer:
            return Ending(**json.loads(answer))
        if code >= 0:
            break
    if should_stop() or abandoned():
        return Ending(order["name"], INTERRUPTED)
    how = f"was killed {1 + RETRIES} times, last by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return Ending(order["name"], FAILED, f"its process {how}; see {Path(order['work'][0][0]) / LOG}")


def _attend(order: dict[str, Any], text: str, should_stop: Asked, abandoned: Asked) -> tuple[int, bytes]:
    """Starts a process and waits for its end: exit code, and the line that it answered with, if any."""
    with _log(order) as log:
        child = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=order["cwd"],
            env={**os.environ, "OMP_NUM_THREADS": str(order["threads"])},
            start_new_session=True,  # Ctrl-C is for the sweep, which tells its processes
        )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdout:
        try:
            with suppress(BrokenPipeError):
                child.stdin.write(text.encode() + b"\n")
                child.stdin.flush()
            _wait(child, should_stop, abandoned)
        finally:
            _let_go(child)
        return child.wait(), child.stdout.read()


def _log(order: dict[str, Any]) -> IO[bytes]:
    folder = Path(order["cwd"]) / order["work"][0][0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log: IO[bytes] = (folder / LOG).open("ab")
    except OSError as error:
        raise UserError(f"{folder} cannot be written to ({error.strerror}); choose another --out") from None
    return log


def _wait(child: subprocess.Popen[bytes], should_stop: Asked, abandoned: Asked) -> None:
    while child.poll() is None:
        if abandoned():
            child.kill()
        elif should_stop():
            _let_go(child)
        with suppress(subprocess.TimeoutExpired):
            child.wait(PAUSE)


def _let_go(child: subprocess.Popen[bytes]) -> None:
    """The end of its input tells a child to save and end."""
    if child.stdin is not None:
        with suppress(BrokenPipeError):
            child.stdin.close()
