"""The opponents that a search must beat: random connected sub-architectures of its space, and hand-made ResNets.

CIFAR-10 at 16×16, 30,000 training images, ResNet fabric of width 3 with 8 channels, 16 epochs (a reduced protocol).
A random sub-architecture keeps every edge with one probability and is taken if its live part costs 90 to 100 % of the
budget. ResNets have 1 to 4 blocks a group. Finished runs are not run again: this is the cache for every comparison.

    python -m benchmarks.opponents --data-root DATA [--shares 1.0,0.8,0.6,0.4,0.3] [--random 4] [--runs runs/opponents]
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks._common import summarise, write_result
from budgetnet.checkpoint import write_atomically
from budgetnet.costs import macs
from budgetnet.graph import Architecture
from budgetnet.sampling import EdgeDistribution
from budgetnet.spaces import build
from budgetnet.supernet import SuperNetwork

SPACE = "resnet-fabric:width=3,channels=8"
DATA = "cifar10:size=16,limit=30000"
RESNET20_MACS = 2_589_504
EPOCHS = 16
RANGE = (0.9, 1.0)
"""Of the budget that a random sub-architecture costs."""
RESNETS = (1, 2, 3, 4)


def random_architectures(net: SuperNetwork, maximum: float, count: int, seed: int) -> list[Architecture]:
    """Connected sub-architectures that cost 90 to 100 % of a maximum, all edges being equally probable."""
    generator, cost = torch.Generator().manual_seed(seed), macs(net)
    found: list[Architecture] = []
    logit = _logit(net, maximum * sum(RANGE) / 2)
    while len(found) < count:
        gates = _draw(net, logit, 64, generator)
        costs = cost.evaluate(gates)
        fit = gates.any(1) & (costs >= RANGE[0] * maximum) & (costs <= RANGE[1] * maximum)
        found += [net.graph.architecture(row) for row in gates[fit]]
    return found[:count]


def _draw(net: SuperNetwork, logit: float, count: int, generator: torch.Generator) -> torch.Tensor:
    distribution = EdgeDistribution(net.graph)
    with torch.no_grad():
        distribution.logits.fill_(logit)
    return net.graph.live(distribution.sample(count, generator).gates)


def _logit(net: SuperNetwork, target: float) -> float:
    """The logit of all edges at which connected samples cost `target` on average."""
    low, high = -5.0, 5.0
    for _ in range(20):
        middle = (low + high) / 2
        live = _draw(net, middle, 512, torch.Generator().manual_seed(0))
        mean = float(macs(net).evaluate(live[live.any(1)]).mean()) if live.any() else 0.0
        low, high = (middle, high) if mean < target else (low, middle)
    return (low + high) / 2


def runs(folder: Path, shares: Sequence[float], count: int) -> Iterator[tuple[str, int, str, str]]:
    """(name, seed, space, architecture) of every opponent; random architectures are written beside their runs."""
    for blocks in RESNETS:
        yield f"resnet-{6 * blocks + 2}", 0, f"resnet-fabric:width={blocks},channels=8", f"resnet-{6 * blocks + 2}"
    net = build(SPACE, (3, 16, 16), 10)
    for share in shares:
        for seed, found in enumerate(random_architectures(net, share * RESNET20_MACS, count, seed=round(1000 * share))):
            path = folder / f"random-{share:g}-{seed}.json"
            write_atomically(path, (found.to_json() + "\n").encode())
            yield path.stem, seed, SPACE, str(path)


def train(space: str, architecture: str, seed: int, data_root: str, out: Path) -> dict[str, Any]:
    """The summary of one trained opponent."""
    if not (out / "summary.json").exists():
        settings = ["--data", DATA, "--data-root", data_root, "--epochs", str(EPOCHS), "--seed", str(seed)]
        where = ["--out", str(out), "--resume", "--threads", "1", "--quiet", "--json"]
        command = ["budgetnet", "train", space, "--architecture", architecture, *settings, *where]
        subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return {key: summary[key] for key in ("seed", "macs", "params", "validation_accuracy", "test_accuracy", "seconds")}


def interpolated(points: Sequence[tuple[float, float]], macs: float) -> float | None:
    """The score at a cost, linearly between the two neighbours; None outside."""
    ordered = sorted(points)
    for (x0, y0), (x1, y1) in itertools.pairwise(ordered):
        if x0 <= macs <= x1:
            return y0 + (y1 - y0) * (macs - x0) / (x1 - x0)
    return None


def main() -> None:
    """Trains what is missing, then writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--shares", default="1.0,0.8,0.6,0.4,0.3")
    parser.add_argument("--random", type=int, default=4)
    parser.add_argument("--runs", type=Path, default=Path("runs/opponents"))
    arguments = parser.parse_args()
    shares = [float(share) for share in arguments.shares.split(",")]
    trained: dict[str, dict[str, Any]] = {}
    for name, seed, space, architecture in runs(arguments.runs, shares, arguments.random):
        trained[name] = train(space, architecture, seed, arguments.data_root, arguments.runs / name)
        print(name, json.dumps(trained[name]), flush=True)
    curve = [(run["macs"], run["test_accuracy"]) for name, run in trained.items() if name.startswith("resnet")]
    groups = {
        share: [run for name, run in trained.items() if name.startswith(f"random-{share:g}-")] for share in shares
    }
    payload = {
        "protocol": f"reduced: {DATA}, {SPACE}, {EPOCHS} epochs, one thread; test accuracies are shares",
        "seeds": list(range(arguments.random)),
        "random": {
            f"{share:g}": {
                "test_accuracy": summarise(run["test_accuracy"] for run in group),
                "macs": summarise(run["macs"] for run in group),
                "resnets_at_the_same_macs": summarise(
                    found for run in group if (found := interpolated(curve, run["macs"])) is not None
                ),
            }
            for share, group in groups.items()
        },
        "runs": trained,
    }
    write_result("opponents", payload)


if __name__ == "__main__":
    main()
