"""Is the time that `--dry-run` says the time that the run takes? Five budgets, each forecast and then run.

Forecast and run are processes of their own, one directly after the other, on one thread. The run's time is what its
summary says: training, measuring and writing together.

    python -m benchmarks.dry_run [--epochs 4]      about 6 minutes of one quiet core
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import answer, write_answers

BUDGETS = ("macs<=20%", "macs<=40%", "macs<=70%", "params<=50%", "latency<=60%")
SETTINGS = ("--space", "resnet-fabric:width=3,channels=8", "--data", "embedded:limit=2500", "--threads", "1", "--quiet")
BAR = 0.3
"""The largest part of the run's time by which the forecast may be off, for every budget."""


def asked(arguments: Sequence[str]) -> dict[str, Any]:
    """What the command line answers as JSON."""
    command = [sys.executable, "-m", "budgetnet", "search", *SETTINGS, *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compared(budget: str, epochs: str, folder: Path) -> dict[str, Any]:
    """The forecast of one budget and the time of its run."""
    given = ("--budget", budget, "--epochs", epochs)
    forecast = asked([*given, "--dry-run"])["estimated_seconds"]
    summary = asked([*given, "--out", str(folder)])
    taken = sum(summary["spent"].values())
    row = {"budget": budget, "forecast": forecast, "taken": taken, **summary["spent"], "off": forecast / taken - 1}
    print(f"{budget}: {forecast:.0f} s said, {taken:.0f} s taken, {row['off']:+.0%}", flush=True)
    return row


def main() -> None:
    """Forecasts and runs every budget, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", default="4")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [compared(text, options.epochs, Path(folder) / str(i)) for i, text in enumerate(BUDGETS)]
    worst = max(abs(row["off"]) for row in rows)
    answers = [
        answer("forecast / time of the run", [row["forecast"] / row["taken"] for row in rows]),
        answer("largest part of its time by which a forecast is off", [worst], BAR),
    ]
    write_answers("dry_run", answers, rows=rows, seeds=[0], epochs=float(options.epochs))


if __name__ == "__main__":
    main()
