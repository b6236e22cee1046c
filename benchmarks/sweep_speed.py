"""Do two cores halve a sweep? Eight short searches on the embedded data, on one core and on two.

Back to back on one core is the same sweep with one worker, in a process that may use that core alone. The two are
measured in turns. The bar: the time on two cores is at most 1.15 times that on one core divided by two.

    python -m benchmarks.sweep_speed [--epochs 0.5] [--runs 8] [--repeats 2]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from benchmarks._common import summarise, write_result

BAR = 1.15
SPACE = "resnet-fabric:width=3,channels=8"
BUDGET = "macs<=40%"


def main() -> None:
    """Measures in turns and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        sys.exit("this benchmark compares two cores with one; let it have two")
    one, two = [], []
    for _ in range(arguments.repeats):
        one.append(_sweep(cores[:1], arguments.runs, arguments.epochs))
        two.append(_sweep(cores, arguments.runs, arguments.epochs))
    ratios = [b / (a / 2) for a, b in zip(one, two, strict=True)]
    write_result(
        "sweep_speed",
        {
            "protocol": f"{arguments.runs} searches, {SPACE}, embedded data, {BUDGET}, {arguments.epochs:g} epochs",
            "seeds": list(range(arguments.runs)),
            "seconds_on_one_core": summarise(one),
            "seconds_on_two_cores": summarise(two),
            "two_cores_over_half_of_one": summarise(ratios),
            "bar": BAR,
            "passed": summarise(ratios)["median"] <= BAR,
        },
    )


def _sweep(cores: Collection[int], runs: int, epochs: float) -> float:
    """Seconds of the whole command, from its start to its table."""
    settings = ["--space", SPACE, "--data", "embedded", "--budgets", BUDGET, "--epochs", str(epochs), "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "budgetnet", "sweep", *settings, "--out", str(Path(folder) / "sweep")]
        command += ["--workers", str(len(cores)), "--seeds", *map(str, range(runs))]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
        clock = time.perf_counter()
        try:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        finally:
            os.sched_setaffinity(0, before)
        return time.perf_counter() - clock


if __name__ == "__main__":
    main()
