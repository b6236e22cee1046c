"""Do budgets for int8 files hold, and is int8 worth it? Short searches on the embedded data.

Ten searches have a budget for the int8 file: in bytes, at three seeds and at four other limits, and in milliseconds at
three shares of the full network's. Each certificate is measured again in a fresh process. Three more searches have the
same number of bytes for the float32 file, with the same seeds: at equal bytes, int8 should be more accurate.

    python -m benchmarks.int8_budgets [--runs runs/int8-budgets]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks._common import write_result

SPACE, DATA, EPOCHS = "resnet-fabric:width=2,channels=8", "embedded:size=14,limit=2000", "4"
SEEDS = (0, 1, 2)
EQUAL = "100kB"
"""A fifth of the full network's float32 file, and half of its int8 file."""
BUDGETS = [
    *((f"file_size(precision=int8)<={EQUAL}", seed) for seed in SEEDS),
    *((f"file_size(precision=int8)<={share}%", 0) for share in (40, 55, 70, 85)),
    *((f"latency(precision=int8)<={share}%", 0) for share in (50, 65, 80)),
]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """budgetnet in a process of its own, on one thread."""
    return subprocess.run(
        [sys.executable, "-m", "budgetnet", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def search(budget: str, seed: int, run: Path) -> dict[str, Any]:
    """One search, and its certificate measured again in a fresh process."""
    shutil.rmtree(run, ignore_errors=True)
    words = ["--space", SPACE, "--data", DATA, "--epochs", EPOCHS, "--seed", str(seed), "--threads", "1", "--quiet"]
    done = command("search", *words, "--budget", budget, "--out", str(run))
    row: dict[str, Any] = {"budget": budget, "seed": seed, "exit_code": done.returncode}
    if not (run / "summary.json").exists():
        return {**row, "said": done.stderr.strip()[-300:]}
    summary, certificate = (json.loads((run / f"{name}.json").read_text()) for name in ("summary", "certificate"))
    again = json.loads(command("certify", str(run), "--json").stdout)
    exported = json.loads(command("export", str(run), "--json").stdout)
    int8 = run / "network.int8.onnx"
    return {
        **row,
        "maximum": certificate["budgets"][0]["maximum"],
        "measured": certificate["budgets"][0]["measured"],
        "holds": certificate["holds"],
        "holds_again": again["holds"],
        "fp32_bytes": exported["bytes"],
        "int8_bytes": int8.stat().st_size if int8.exists() else None,
        "params": summary["params"],
        "validation": summary["validation_accuracy"],
        "test": summary["test_accuracy"],
        "int8_validation": summary.get("int8_validation"),
        "int8_test": summary.get("int8_test"),
        "int8_drop": (certificate.get("int8") or {}).get("drop"),
    }


def payload(rows: list[dict[str, Any]], equal: list[dict[str, Any]]) -> dict[str, Any]:
    """The table, and what it says about the two bars."""
    finished = [row for row in rows if "holds" in row]
    both = [
        (first["int8_test"], second["test"])
        for first, second in zip(rows[: len(SEEDS)], equal, strict=False)
        if "holds" in first and "holds" in second
    ]
    return {
        "space": SPACE,
        "data": DATA,
        "epochs": EPOCHS,
        "n": len(rows),
        "held": sum(row["holds"] for row in finished),
        "held_again": sum(row["holds_again"] for row in finished),
        "met": len(finished) == len(BUDGETS) and all(row["holds"] and row["holds_again"] for row in finished),
        "rows": rows,
        "equal_bytes": {
            "limit": EQUAL,
            "seeds": list(SEEDS),
            "int8_test": [pair[0] for pair in both],
            "fp32_test": [pair[1] for pair in both],
            "mean_gain_points": 100 * fmean(first - second for first, second in both) if both else None,
            "met": len(both) == len(SEEDS) and fmean(a - b for a, b in both) > 0,
            "fp32_rows": equal,
        },
    }


def main() -> None:
    """Runs all searches; the result file is written after each, so that an interrupted run leaves what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/int8-budgets"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    equal: list[dict[str, Any]] = []
    for number, (budget, seed) in enumerate(BUDGETS):
        rows.append(search(budget, seed, arguments.runs / str(number)))
        if number < len(SEEDS):
            equal.append(search(f"file_size<={EQUAL}", seed, arguments.runs / f"fp32-{seed}"))
        write_result("int8_budgets", payload(rows, equal))


if __name__ == "__main__":
    main()
