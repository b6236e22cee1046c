"""How long is the first search of somebody who has just installed budgetnet? `budgetnet search`, two threads.

Reported, not held against a bar: about two minutes are promised.

    python -m benchmarks.default_search [--repeats 1] [--threads 2]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks._common import Answer, arguments, quartiles, write_answers


def main() -> None:
    """The command, as a user types it, in a folder of its own."""
    options = arguments(__doc__, repeats=1, threads=2)
    seconds, summaries = [], []
    command = [sys.executable, "-m", "budgetnet", "search", "--threads", str(options.threads), "--quiet", "--json"]
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            out = ["--out", str(Path(folder) / "run")]
            done = subprocess.run([*command, *out], check=True, stdout=subprocess.PIPE)
            seconds.append(time.perf_counter() - start)
            summaries.append(json.loads(done.stdout))
    low, middle, high = quartiles(seconds)
    found = Answer("wall time of `budgetnet search`", middle, low, high, options.repeats, unit="s")
    write_answers(
        "default_search",
        [found],
        seeds=[0],
        threads=options.threads,
        phases=[summary["phases"] for summary in summaries],
        test_accuracy=[summary["test_accuracy"] for summary in summaries],
        budgets_met=[all(budget["met"] for budget in summary["budgets"]) for summary in summaries],
    )


if __name__ == "__main__":
    main()
