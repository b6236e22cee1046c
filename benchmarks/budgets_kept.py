"""Are budgets kept? Thirty short searches over random budgets, costs and seeds; every result meets them or was refused.

python -m benchmarks.budgets_kept [--runs 30]
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks._common import write_result
from budgetnet import Architecture, Config, SuperNetwork, UserError
from budgetnet.naming import own_names
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.job import prepare

SPACE = "resnet-fabric:width=2,channels=4"
DATA = "embedded:size=14,limit=1280"
COSTS = (
    ("macs",),
    ("params",),
    ("steps(2)",),
    ("benchmarks.budgets_kept:energy",),
    ("benchmarks.budgets_kept:noisy",),
    ("macs", "steps(2)"),
)


def energy(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost that does not add up: joules of the edges, and a surcharge for every node with several inputs."""
    joules = {edge.name: 0.2 + 0.1 * (i % 7) for i, edge in enumerate(net.graph.edges)}

    def cost(architecture: Architecture) -> float:
        live = list(architecture.live())
        targets = [edge.target for edge in live]
        crowded = sum(targets.count(node) > 2 for node in set(targets))
        return sum(joules[edge.name] for edge in live) * (1 + 0.05 * crowded)

    return cost


energy.unit = "J"  # type: ignore[attr-defined]


def noisy(net: SuperNetwork) -> Callable[[Architecture], float]:
    """The same, with noise of a tenth of it: a random variable, redrawn at every evaluation."""
    exact, generator = energy(net), random.Random(0)
    return lambda architecture: exact(architecture) * max(0.0, generator.gauss(1.0, 0.1))


noisy.unit, noisy.stochastic = "J", True  # type: ignore[attr-defined]


def main() -> None:
    """Runs the searches and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    count = parser.parse_args().runs
    torch.set_num_threads(1)
    chance = random.Random(0)
    rows = []
    for number in range(count):
        budgets = tuple(f"{cost}<={chance.uniform(3, 100):.1f}%" for cost in COSTS[number % len(COSTS)])
        rows.append({"seed": number, "budgets": budgets, **_outcome(budgets, number)})
        print(rows[-1], flush=True)
    used = [share for row in rows if row["outcome"] == "met" for share in row["used"]]
    payload = {
        "protocol": f"{SPACE} on {DATA}, 1 final epoch, one thread",
        "met": sum(row["outcome"] == "met" for row in rows),
        "refused": sum(row["outcome"] == "refused" for row in rows),
        "missed": sum(row["outcome"] == "missed" for row in rows),
        "mean_used_share": sum(used) / len(used),
        "runs": rows,
    }
    write_result("budgets_kept", payload)


def _outcome(budgets: tuple[str, ...], seed: int) -> dict[str, Any]:
    config = Config(space=SPACE, data=DATA, budgets=budgets, epochs=1, seed=seed, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = execute(prepare(config, own_names(*budgets)), Path(folder) / "run", Options(quiet=True))
        except UserError as error:
            return {"outcome": "refused", "why": str(error)}
    return {
        "outcome": "met" if result.met else "missed",
        "used": [round(budget.share, 4) for budget in result.summary.budgets],
        "test_accuracy": round(result.summary.test_score or 0.0, 4),
    }


if __name__ == "__main__":
    main()
