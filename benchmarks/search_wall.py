"""What does searching cost on top of training? Wall time of a whole search over that of training what it found.

The default recipe, space, budget and data. The found network is then trained alone, from fresh weights, for the same
epochs by the same loop. Both are whole runs, from the check of the budgets to the report, on one thread, one after the
other in one process; each seed is a pair.

    python -m benchmarks.search_wall [--seeds 1] [--data embedded] [--epochs E]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import answer, pin_threads, write_answers
from budgetnet.runs.config import Config
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.job import Job, prepare
from budgetnet.runs.result import Result

BAR = 1.6


def timed(job: Job, out: Path) -> tuple[Result, float]:
    """A run and its seconds."""
    start = time.perf_counter()
    result = execute(job, out, Options(quiet=True))
    return result, time.perf_counter() - start


def pair(config: Config, folder: Path) -> dict[str, Any]:
    """A search, then the training of its network alone."""
    found, searching = timed(prepare(config), folder / "search")
    alone = prepare(replace(config, budgets=(), architecture=str(folder / "search" / "architecture.json")))
    trained, training = timed(alone, folder / "train")
    assert trained.architecture == found.architecture
    return {
        "seed": config.seed,
        "search_seconds": searching,
        "training_seconds": training,
        "phases": dict(found.summary.phases),
        "training_phases": dict(trained.summary.phases),
        "accuracies": [found.summary.test_score, trained.summary.test_score],
    }


def main() -> None:
    """One pair for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--data", default=Config().data)
    parser.add_argument("--data-root")
    parser.add_argument("--epochs", type=float)
    options = parser.parse_args()
    pin_threads(1)
    config = Config(data=options.data, data_root=options.data_root, epochs=options.epochs, threads=1)
    pairs = []
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            pairs.append(pair(replace(config, seed=seed), Path(folder)))
    loops = [sum(row["phases"].values()) / sum(row["training_phases"].values()) for row in pairs]
    whole = [row["search_seconds"] / row["training_seconds"] for row in pairs]
    answers = [
        answer("search + training / training alone, whole runs", whole, BAR),
        answer("the same without check, certificate and report", loops, BAR),
    ]
    write_answers("search_wall", answers, seeds=list(range(options.seeds)), data=options.data, runs=pairs)


if __name__ == "__main__":
    main()
