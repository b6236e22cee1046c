"""Does the search learn? A reduced protocol: CIFAR-10 at 16×16, 30,000 training images, ResNet fabric of width 3.

The fabric has 8 channels, the budget is the multiply-adds of its ResNet-20. Opponent: that ResNet-20, trained by
`budgetnet train` with the same final epochs, data and augmentation. Three seeds. Finished runs are not run again.

    python -m benchmarks.learns --data-root DATA [--runs runs/learns] [--seeds 0,1,2]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks._common import add_data_root, numbers, write_result

SPACE = "resnet-fabric:width=3,channels=8"
DATA = "cifar10:size=16,limit=30000"
BUDGET = "macs<=2.589504M"
EPOCHS = 16


def main() -> None:
    """Runs what is missing, then writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--runs", type=Path, default=Path("runs/learns"))
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    arguments = parser.parse_args()
    seeds = arguments.seeds
    searches, baselines = [], []
    for seed in seeds:
        common = ["--data", DATA, "--data-root", arguments.data_root, "--epochs", str(EPOCHS), "--seed", str(seed)]
        search = ["search", "--space", SPACE, "--budget", BUDGET]
        searches.append(_run([*search, *common], arguments.runs / f"search-{seed}"))
        train = ["train", SPACE, "--architecture", "resnet-20"]
        baselines.append(_run([*train, *common], arguments.runs / f"resnet-20-{seed}"))
    write_result("learns", _result(seeds, searches, baselines))


def _run(command: list[str], out: Path) -> dict[str, Any]:
    options = ["--out", str(out), "--resume", "--threads", "1", "--json"]
    done = subprocess.run([sys.executable, "-m", "budgetnet", *command, *options], check=True, stdout=subprocess.PIPE)
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def _result(seeds: list[int], searches: list[dict[str, Any]], baselines: list[dict[str, Any]]) -> dict[str, Any]:
    found = [100 * run["test_accuracy"] for run in searches]
    resnet = [100 * run["test_accuracy"] for run in baselines]
    ratios = [run["seconds"] / run["phases"]["finish"] for run in searches]
    return {
        "protocol": f"reduced: {DATA}, {SPACE}, {BUDGET}, {EPOCHS} final epochs, one thread",
        "seeds": seeds,
        "search_test_accuracy": _spread(found),
        "resnet20_test_accuracy": _spread(resnet),
        "difference": _spread([a - b for a, b in zip(found, resnet, strict=True)]),
        "macs": [run["macs"] for run in searches],
        "resnet20_macs": baselines[0]["macs"],
        "used": _spread([run["budgets"][0]["value"] / run["budgets"][0]["maximum"] for run in searches]),
        "budgets_met": [run["budgets"][0]["met"] for run in searches],
        "time_of_search_and_training_over_training": _spread(ratios),
        "phases": [run["phases"] for run in searches],
        "resnet20_seconds": [run["seconds"] for run in baselines],
    }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "values": [round(value, 4) for value in values],
        "mean": round(statistics.mean(values), 4),
        "standard_deviation": round(statistics.stdev(values), 4) if len(values) > 1 else None,
    }


if __name__ == "__main__":
    main()
