"""What do records and checkpoints cost? Whole searches with both against searches with neither, in turns.

The default space, data and budget, one thread. An epoch instead of eight makes checkpoints, one after every phase and
every epoch of five seconds, more frequent than they are by default: the default costs less.

    python -m benchmarks.records_overhead [--repeats 5] [--images 2560]
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from budgetnet.budgets.feasibility import check, profile
from budgetnet.network.graph import Architecture
from budgetnet.records.records import JsonLines
from budgetnet.runs.config import Config
from budgetnet.runs.execute import Job, prepare
from budgetnet.strategies.loop import Loop
from budgetnet.training import checkpoint

BAR = 1.03


def loop(job: Job, anchor: Architecture, **options: Any) -> Loop:
    """The loop of a job, on a copy of its network."""
    net = copy.deepcopy(job.net)
    return Loop(net, job.task, job.train, job.validation, job.budgets, job.recipe, anchor, **options)


def recorded(job: Job, anchor: Architecture, folder: Path) -> None:
    """A search that writes what a run writes."""
    lines, numbers = JsonLines(folder / "records.jsonl"), itertools.count()
    with checkpoint.Writer(folder / "checkpoints") as writer:

        def save(state: dict[str, Any]) -> None:
            writer.save(next(numbers), {**state, "records": lines.position})

        loop(job, anchor, sink=lines, save=save).run()
    lines.close()


def main() -> None:
    """Both sides in turns."""
    options = arguments(__doc__, repeats=5, images=2560)
    pin_threads(1)
    job = prepare(Config(data=f"embedded:limit={options.images}", epochs=1, threads=1))
    anchor = check(profile(job.budgets, 0), 0)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        names = map(str, itertools.count())
        sides = {
            "on": lambda: recorded(job, anchor, Path(folder) / next(names)),
            "off": lambda: loop(job, anchor).run(),
        }
        seconds = rounds(sides, options.repeats, warmups=1)
    found = answer("records and checkpoints on / off", paired(seconds["on"], seconds["off"]), BAR)
    write_answers("records_overhead", [found], seeds=[0], seconds=seconds)


if __name__ == "__main__":
    main()
