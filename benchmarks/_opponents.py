"""What a search is compared with: hand-made ResNets and random sub-architectures, trained once and kept.

The protocol of the comparisons: CIFAR-10 at 16×16, 30,000 training images, ResNet fabric of width 3 with 8 channels, 16
final epochs. A random opponent is a connected sub-architecture that costs 90 to 100 % of a budget, every edge being
equally probable; the i-th one of a budget is trained with seed i.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

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
RESNETS = [f"resnet-fabric:width={blocks},channels=8@resnet-{6 * blocks + 2}" for blocks in (1, 2, 3, 4)]

Row = Mapping[str, Any]
Table = list[dict[str, Any]]
Point = tuple[float, float]
"""Multiply-adds and test accuracy."""


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


def train_random(out: Path, data_root: str, share: float, count: int, longer: float = 1.0) -> Table:
    """A row for each random sub-architecture of a budget, which is a share of the ResNet-20.

    They are trained for so many times the usual epochs.
    """
    net, runs = build(SPACE, (3, 16, 16), 10), []
    for i, found in enumerate(random_architectures(net, share * RESNET20_MACS, count, seed=round(1000 * share))):
        path = out / f"random-{share:g}-{i}.json"
        write_atomically(path, (found.to_json() + "\n").encode())
        runs.append({"architectures": [str(path)], "seeds": [i]})
    name = f"random-{share:g}" if longer == 1 else f"random-{share:g}-long"
    return sweep(out / name, data_root, runs, epochs=longer * EPOCHS)


def train_resnets(out: Path, data_root: str, seeds: Sequence[int]) -> Table:
    """A row for each ResNet of 1 to 4 blocks a group, and seed."""
    return sweep(out / "resnets", data_root, [{"architectures": RESNETS, "seeds": list(seeds)}])


def sweep(
    out: Path, data_root: str, runs: Iterable[Mapping[str, Any]], *, test_all: bool = False, **settings: Any
) -> Table:
    """The table of a sweep of these grids; what is finished is not run again."""
    shared = {"space": SPACE, "data": DATA, "data_root": data_root, "epochs": EPOCHS, "threads": 1, **settings}
    lines = [f"{key} = {json.dumps(value)}" for key, value in shared.items()]
    for run in runs:
        lines += ["", "[[runs]]", *(f"{key} = {json.dumps(value)}" for key, value in run.items())]
    file = out.with_suffix(out.suffix + ".toml")
    write_atomically(file, "\n".join([*lines, ""]).encode())
    command = [sys.executable, "-m", "budgetnet", "sweep", str(file), "--out", str(out)]
    subprocess.run([*command, "--test-all"] if test_all else command, check=True)
    table: Table = json.loads((out / "table.json").read_text(encoding="utf-8"))
    return table


def interpolated(points: Sequence[Point], macs: float) -> float:
    """The score at a cost, linearly between the two neighbours; outside of the points that of the nearer end."""
    ordered = sorted(points)
    for (x0, y0), (x1, y1) in itertools.pairwise(ordered):
        if x0 <= macs <= x1:
            return y0 + (y1 - y0) * (macs - x0) / (x1 - x0)
    return ordered[0][1] if macs < ordered[0][0] else ordered[-1][1]


def mean_point(rows: Sequence[Row]) -> Point:
    """Mean multiply-adds and test accuracy."""
    return fmean(row["macs"] for row in rows), fmean(row["test"] for row in rows)


def mean_points(rows: Sequence[Row], key: str) -> list[Point]:
    """The mean point of the rows that agree in a column: over their seeds."""
    return [mean_point([row for row in rows if row[key] == value]) for value in dict.fromkeys(r[key] for r in rows)]
