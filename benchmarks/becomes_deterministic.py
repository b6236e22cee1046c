"""Does Γ become deterministic, as in the paper's figure of the learning dynamics?

The paper recipe and its 300 epochs on the embedded images, reduced in size: 8×8, 1,920 images, a ResNet fabric of one
group, 6 edges. The mean entropy per edge at the end, with no clamping of γ, and the curve over the epochs.

An edge that leads to a node from which nothing reaches the output any more has no effect, hence no gradient, and keeps
its entropy. So the fabric is one in which every node leads on; larger ones keep such left-over entropy.

    python -m benchmarks.becomes_deterministic [--epochs 300] [--run runs/deterministic]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks._common import write_result
from budgetnet import Config
from budgetnet.records.records import read
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.job import prepare

SPACE = "resnet-fabric:width=3,channels=4,groups=1"
DATA = "embedded:size=8,limit=1920"
BUDGET = "macs<=45%"
PENALTY = 5.0
BAR = 0.05


def main() -> None:
    """Runs the search, or goes on with it, and writes the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, default=300)
    parser.add_argument("--run", type=Path, default=Path("runs/deterministic"))
    arguments = parser.parse_args()
    config = Config(
        space=SPACE,
        data=DATA,
        budgets=(BUDGET,),
        recipe="paper",
        epochs=arguments.epochs,
        penalty=PENALTY,
        threads=1,
    )
    result = execute(prepare(config), arguments.run, Options(quiet=True, resume=True))
    records, _ = read(arguments.run / "records.jsonl")
    curve = [(r.epoch, r.values["entropy"]) for r in records if r.kind == "epoch" and r.phase == "search"]
    payload = {
        "protocol": f"reduced: paper recipe, {SPACE} on {DATA}, {BUDGET}, λ = {PENALTY}, {arguments.epochs:g} epochs",
        "seeds": [config.seed],
        "bar_bits_per_edge": BAR,
        "final_entropy_bits_per_edge": curve[-1][1],
        "below_bar": curve[-1][1] < BAR,
        "curve": [[epoch, round(entropy, 5)] for epoch, entropy in curve[:: max(1, len(curve) // 100)]],
        "budgets": result.summary.to_json()["budgets"],
        "test_accuracy": result.summary.test_score,
    }
    write_result("becomes_deterministic", payload)


if __name__ == "__main__":
    main()
