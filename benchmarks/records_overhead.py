"""What do records and checkpoints cost? Whole searches with both against searches with neither, in turns.

The default space, data and budget, one thread. An epoch instead of eight makes checkpoints, one after every phase and
every epoch of five seconds, more frequent than they are by default: the default costs less.

    python -m benchmarks.records_overhead [--repeats 5] [--images 2560]
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from budgetnet.records.records import JsonLines
from budgetnet.runs.config import Config
from budgetnet.runs.job import Checked, Job, check_job, make_runner, make_trainer, prepare
from budgetnet.strategies.runner import Runner
from budgetnet.training import checkpoint

BAR = 1.03


def runner(job: Job, checked: Checked, **options: Any) -> Runner:
    """The phases of a job, on a copy of its network."""
    return make_runner(replace(job, net=copy.deepcopy(job.net)), checked, make_trainer(job, **options))


def recorded(job: Job, checked: Checked, folder: Path) -> None:
    """A search that writes what a run writes."""
    lines, numbers = JsonLines(folder / "records.jsonl"), itertools.count()
    with checkpoint.Writer(folder / "checkpoints") as writer:

        def save(state: dict[str, Any]) -> None:
            writer.save(next(numbers), {**state, "records": lines.position})

        runner(job, checked, sink=lines, save=save).run()
    lines.close()


def main() -> None:
    """Both sides in turns."""
    options = arguments(__doc__, repeats=5, images=2560)
    pin_threads(1)
    job = prepare(Config(data=f"embedded:limit={options.images}", epochs=1, threads=1))
    checked = check_job(job)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        names = map(str, itertools.count())
        sides = {
            "on": lambda: recorded(job, checked, Path(folder) / next(names)),
            "off": lambda: runner(job, checked).run(),
        }
        seconds = rounds(sides, options.repeats, warmups=1)
    found = answer("records and checkpoints on / off", paired(seconds["on"], seconds["off"]), BAR)
    write_answers("records_overhead", [found], seeds=[0], seconds=seconds)


if __name__ == "__main__":
    main()
