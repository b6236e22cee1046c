"""Do budgets for int8 files hold, and is int8 worth it? Short searches on the embedded data.

Ten searches have a budget for the int8 file: in bytes, at three seeds and at four other limits, and in milliseconds at
three shares of the full network's. Each certificate is measured again in a fresh process. Three more searches have the
same number of bytes for the float32 file, with the same seeds: at equal bytes, int8 should be more accurate.

A search takes one to three minutes on one core. Finished searches are kept in `ledger.json` beside the runs: the
same command goes on after the last one.

    python -m benchmarks.int8_budgets [--runs runs/int8-budgets]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks._common import commit, summarise, write_result

SPACE, DATA, EPOCHS = "resnet-fabric:width=2,channels=8", "embedded:size=14", "8"
SEEDS = (0, 1, 2)
EQUAL = "60kB"
"""Small enough for the number of weights to matter: a quarter of the full network's int8 file."""
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
    row: dict[str, Any] = {"budget": budget, "seed": seed, "commit": commit(), "exit_code": done.returncode}
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


class Searches:
    """Searches that were run once, by what each follows from; a finished one is read, not run again.

    Args:
        folder: Where the runs and the ledger are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, folder / "ledger.json"
        self.rows: dict[str, dict[str, Any]] = json.loads(self.ledger.read_text()) if self.ledger.exists() else {}

    def row(self, budget: str, seed: int) -> dict[str, Any]:
        """The row of a search."""
        key = f"{SPACE} {DATA} {EPOCHS} {budget} {seed}"
        if key not in self.rows:
            run = self.folder / re.sub(r"[^a-z0-9]+", "-", f"{budget}-{seed}".lower())
            self.rows[key] = search(budget, seed, run)
            self.ledger.write_text(json.dumps(self.rows, indent=1) + "\n")
        return self.rows[key]


def payload(rows: list[dict[str, Any]], equal: list[dict[str, Any]]) -> dict[str, Any]:
    """The table, and what it says about the two bars."""
    finished = [row for row in rows if "holds" in row]
    return {
        "space": SPACE,
        "data": DATA,
        "epochs": EPOCHS,
        "n": len(rows),
        "held": sum(row["holds"] for row in finished),
        "held_again": sum(row["holds_again"] for row in finished),
        "met": len(finished) == len(BUDGETS) and all(row["holds"] and row["holds_again"] for row in finished),
        "int8_drop_points": summarise(row["int8_drop"] for row in finished),
        "rows": rows,
        "equal_bytes": equal_bytes(rows[: len(SEEDS)], equal),
    }


def equal_bytes(int8: list[dict[str, Any]], fp32: list[dict[str, Any]]) -> dict[str, Any]:
    """Test accuracies within the same number of bytes, paired by seed: of int8 files and of float32 files."""
    both = [(a["int8_test"], b["test"]) for a, b in zip(int8, fp32, strict=True) if "holds" in a and "holds" in b]
    gains = [100 * (a - b) for a, b in both]
    return {
        "limit": EQUAL,
        "seeds": list(SEEDS),
        "int8_test": [a for a, _ in both],
        "fp32_test": [b for _, b in both],
        "gain_points": summarise(gains) if gains else None,
        "met": len(gains) == len(SEEDS) and min(gains) > 0,
        "fp32_rows": fp32,
    }


def main() -> None:
    """Runs the searches that are not in the ledger, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/int8-budgets"))
    arguments = parser.parse_args()
    arguments.runs.mkdir(parents=True, exist_ok=True)
    searches = Searches(arguments.runs)
    equal = [searches.row(f"file_size<={EQUAL}", seed) for seed in SEEDS]
    write_result("int8_budgets", payload([searches.row(*wanted) for wanted in BUDGETS], equal))


if __name__ == "__main__":
    main()
