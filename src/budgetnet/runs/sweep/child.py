"""The process of one order: reads it from standard input, and saves and ends when standard input is closed.

Closing happens when the sweep wants to stop and when its process is killed, so that no run outlives its sweep.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import torch

from budgetnet.errors import Interrupted, UserError
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import Config, from_mapping
from budgetnet.runs.execute import Options, execute, judge_on_test
from budgetnet.runs.job import prepare
from budgetnet.runs.sweep.engine import FAILED, FINISHED, INTERRUPTED, REFUSED, TEST, Asked, code_version

GRACE = 15.0
"""Seconds to save in, once standard input is closed."""
PATIENCE = 30.0
"""Seconds to wait for a process of an earlier sweep that is still saving: more than GRACE."""


def main() -> int:
    """Carries out the order on standard input; the ending is one line of JSON on standard output."""
    answers = _own_output()
    line = sys.stdin.buffer.readline()
    if not line:
        return 1
    order = json.loads(line)
    stop = threading.Event()
    threading.Thread(target=_watch, args=(stop,), daemon=True).start()
    state, message = ended(lambda: carry_out(order, stop.is_set), Path(order["work"][0][0]))
    with suppress(BrokenPipeError), answers:
        answers.write(json.dumps({"name": order["name"], "state": state, "message": message}) + "\n")
    return 0


def _own_output() -> TextIO:
    """Standard output for the ending alone; what a user's cost prints goes to the log, as does standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _watch(stop: threading.Event) -> None:
    # not through sys.stdin: a thread that holds its lock would trouble the end of the interpreter
    while os.read(0, 1):
        pass
    stop.set()
    time.sleep(GRACE)
    os._exit(1)


def ended(work: Callable[[], None], folder: Path) -> tuple[str, str]:
    """How some work ended, and why; what a run says before its first step is a refusal."""
    try:
        work()
    except Interrupted:
        return INTERRUPTED, ""
    except UserError as error:
        return (FAILED if RunFolder(folder).exists else REFUSED), str(error)
    except Exception as error:
        traceback.print_exc()
        return FAILED, f"{type(error).__name__}: {error}"
    return FINISHED, ""


def carry_out(order: dict[str, Any], should_stop: Asked) -> None:
    """Trains or judges the runs of an order."""
    if order["version"] != code_version():
        raise UserError(
            f"budgetnet is {code_version()} here and {order['version']} where the sweep was started; "
            "install the same version"
        )
    torch.set_num_threads(order["threads"])
    for path, settings in order["work"]:
        if should_stop():
            raise Interrupted
        config = from_mapping(settings, path)
        if order["kind"] == TEST:
            judge_on_test(Path(path), config, PATIENCE, order["own"])
        else:
            _train(Path(path), config, order, should_stop)


def _train(path: Path, config: Config, order: dict[str, Any], should_stop: Asked) -> None:
    if RunFolder(path).finished:
        return
    options = Options(
        quiet=True,
        resume=True,
        should_stop=should_stop,
        say=lambda line: print(line, file=sys.stderr),
        patience=PATIENCE,
        command=order["command"],
        judge=False,
        report=False,
    )
    execute(prepare(config, order["own"]), path, options)


if __name__ == "__main__":
    sys.exit(main())
