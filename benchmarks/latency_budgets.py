"""Do latency budgets hold on the real target? Budgets from below the smallest reachable to the full network.

For ONNX Runtime and eager torch, budgets are spread evenly from 0.8 times the smallest reachable latency to the full
network's. Those below the smallest must be refused, and only those; all others are searched, and their certificate is
measured again, once, in a fresh process. Every outcome is in the table; nothing is tried twice.

    python -m benchmarks.latency_budgets [--searches 20] [--runs runs/latency-budgets]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import pin_threads, summarise, write_result
from budgetnet import data
from budgetnet.budgets.feasibility import smallest as cheapest
from budgetnet.costs import bind
from budgetnet.spaces import build

SPACE = "resnet-fabric:width=3,channels=8"
DATA = "embedded:limit=1000"
RUNTIMES = ("onnx", "eager")
LOWEST = 0.8
SEED = 0


def limits(runtime: str, count: int) -> tuple[float, list[float]]:
    """The smallest reachable latency, and the budgets."""
    dataset = data.load(DATA)
    net = build(SPACE, dataset.input_shape, len(dataset.classes))
    meter = bind(f"latency(runtime={runtime})", net)
    smallest = meter.evidence(cheapest(meter)[0]).value
    return smallest, np.linspace(LOWEST * smallest, meter.evidence(net.graph.full).value, count).tolist()


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """budgetnet in a process of its own, on one thread."""
    return subprocess.run(
        [sys.executable, "-m", "budgetnet", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def search(runtime: str, seconds: float, run: Path) -> dict[str, Any]:
    """One search, and one measurement of its result in a fresh process."""
    shutil.rmtree(run, ignore_errors=True)
    budget = f"latency(runtime={runtime})<={seconds * 1e6:.3f}us"
    settings = ["--space", SPACE, "--data", DATA, "--epochs", "1", "--seed", str(SEED), "--threads", "1", "--quiet"]
    done = command("search", *settings, "--budget", budget, "--out", str(run))
    row: dict[str, Any] = {"runtime": runtime, "promised": seconds, "exit_code": done.returncode}
    if not (run / "certificate.json").exists():
        return {**row, "refused": "cannot be met" in done.stderr, "said": done.stderr.strip()}
    again = command("certify", str(run), "--json")
    certified = json.loads((run / "certificate.json").read_text())["budgets"][0]
    measured = json.loads(again.stdout)["budgets"][0]
    return {
        **row,
        "refused": False,
        "predicted": predicted(run),
        "certified": certified["measured"],
        "certified_bound": certified["upper_bound"],
        "certificate_holds": certified["holds"],
        "remeasured": measured["measured"],
        "remeasured_bound": measured["upper_bound"],
        "remeasured_holds": measured["holds"],
        "edges": len(json.loads((run / "architecture.json").read_text())["kept"]),
    }


def predicted(run: Path) -> float:
    """What the predictor expected of the chosen architecture as its bound; of the last one if the run stepped back."""
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    chosen = [record for record in records if record["kind"] == "chosen"]
    return next(float(value) for key, value in chosen[-1].items() if key.startswith("cost/"))


def main() -> None:
    """Runs all searches, one at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=Path("runs/latency-budgets"))
    arguments = parser.parse_args()
    pin_threads(1)
    rows: list[dict[str, Any]] = []
    for runtime in RUNTIMES:
        smallest, budgets = limits(runtime, arguments.searches // len(RUNTIMES))
        for number, seconds in enumerate(budgets):
            row = search(runtime, seconds, arguments.runs / f"{runtime}-{number}")
            rows.append({**row, "smallest": smallest, "reachable": seconds >= smallest})
            print(json.dumps(rows[-1]), flush=True)
    searched = [row for row in rows if "certified" in row]
    payload = {
        "protocol": f"{SPACE} on {DATA}, 1 epoch, budgets from {LOWEST} × the smallest to the full network",
        "seeds": [SEED],
        "n": len(rows),
        "refused_exactly_those_below_the_smallest": all(row["refused"] is not row["reachable"] for row in rows),
        "certificates_hold": sum(row["certificate_holds"] for row in searched),
        "remeasured_hold": sum(row["remeasured_holds"] for row in searched),
        "searched": len(searched),
        "used_share_of_budget": summarise(row["certified"] / row["promised"] for row in searched),
        "remeasured_over_certified": summarise(row["remeasured"] / row["certified"] for row in searched),
        "passed": all(row["refused"] if not row["reachable"] else row.get("remeasured_holds", False) for row in rows),
        "searches": rows,
    }
    write_result("latency_budgets", payload)


if __name__ == "__main__":
    main()
