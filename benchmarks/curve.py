"""Is the search's front above hand-made and random networks? A reduced sweep on CIFAR-10, as the paper's figures.

CIFAR-10 at 16×16, 30,000 training images, ResNet fabric of width 3 with 8 channels, 16 final epochs. One sweep has
searches at shares of its ResNet-20's multiply-adds, ResNets of 1 to 4 blocks a group (the hand-made curve), and random
connected sub-architectures that cost 90 to 100 % of each budget, every edge being equally probable (the chance curve).
The front is chosen on validation data; curves are linear between their points. Finished runs are not run again.

    python -m benchmarks.curve --data-root DATA [--shares 0.4,0.6,0.8,1.0] [--random 2] [--seeds 0,1] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks._common import RESULTS, summarise, write_result
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


def write_random(out: Path, shares: Sequence[float], count: int) -> dict[str, float]:
    """Files of random architectures, and the share that each was made for."""
    net, files = build(SPACE, (3, 16, 16), 10), {}
    for share in shares:
        for i, found in enumerate(random_architectures(net, share * RESNET20_MACS, count, seed=round(1000 * share))):
            path = out / f"random-{share:g}-{i}.json"
            write_atomically(path, (found.to_json() + "\n").encode())
            files[str(path)] = share
    return files


def sweep(out: Path, data_root: str, shares: Sequence[float], seeds: Sequence[str], files: Sequence[str]) -> list[Row]:
    """The table of the sweep."""
    settings = ["--space", SPACE, "--data", DATA, "--data-root", data_root, "--epochs", str(EPOCHS)]
    budgets = [f"macs<={round(share * RESNET20_MACS)}" for share in shares]
    lists = ["--budgets", *budgets, "--seeds", *seeds, "--architectures", *RESNETS, *files]
    command = ["budgetnet", "sweep", *settings, *lists, "--out", str(out / "runs"), "--json", "--quiet"]
    print(shlex.join(command), flush=True)
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    table: list[Row] = json.loads((out / "runs" / "table.json").read_text())
    return table


def interpolated(points: Sequence[Point], macs: float) -> float:
    """The score at a cost, linearly between the two neighbours; outside of the points that of the nearer end."""
    ordered = sorted(points)
    for (x0, y0), (x1, y1) in itertools.pairwise(ordered):
        if x0 <= macs <= x1:
            return y0 + (y1 - y0) * (macs - x0) / (x1 - x0)
    return ordered[0][1] if macs < ordered[0][0] else ordered[-1][1]


def mean_points(rows: Sequence[Row], key: str) -> dict[str, Point]:
    """The mean multiply-adds and test accuracy of rows that agree in a column, over their seeds."""
    groups = {row[key]: [other for other in rows if other[key] == row[key]] for row in rows}
    return {name: (fmean(r["macs"] for r in group), fmean(r["test"] for r in group)) for name, group in groups.items()}


def compare(table: Sequence[Row], files: Mapping[str, float], shares: Sequence[float]) -> dict[str, Any]:
    """The front against both curves, at the multiply-adds of each selected network."""
    hand = list(mean_points([row for row in table if _is_resnet(row)], "space").values())
    random_rows = [{**row, "share": files[row["architecture"]]} for row in table if row["architecture"] in files]
    chance = list(mean_points(random_rows, "share").values())
    front = [row for row in table if row["front"]]
    points = [
        {
            "run": row["run"],
            "macs": row["macs"],
            "validation": row["validation"],
            "test": row["test"],
            "hand_made": interpolated(hand, row["macs"]),
            "chance": interpolated(chance, row["macs"]),
        }
        for row in front
    ]
    return {
        "hand_made": sorted(hand),
        "chance": sorted(chance),
        "chance_spread": {
            f"{share:g}": summarise(row["test"] for row in random_rows if row["share"] == share) for share in shares
        },
        "front": points,
        "above_both": all(p["test"] > p[other] for p in points for other in ("hand_made", "chance")),
    }


def _is_resnet(row: Row) -> bool:
    return str(row["architecture"]).startswith("resnet-")


def draw(found: Mapping[str, Any]) -> None:
    """results/curve.png."""
    import altair

    lines = [("hand-made ResNets", found["hand_made"]), ("random sub-architectures", found["chance"])]
    lines.append(("front of the search", [(p["macs"], p["test"]) for p in found["front"]]))
    rows = [{"curve": name, "multiply-adds": x / 1e6, "test accuracy": 100 * y} for name, ps in lines for x, y in ps]
    chart = altair.Chart(altair.Data(values=rows)).mark_line(point=True)
    scale = altair.Scale(zero=False)
    chart.encode(
        x=altair.X("multiply-adds:Q", scale=scale, title="multiply-adds (M)"),
        y=altair.Y("test accuracy:Q", scale=scale, title="test accuracy (%)"),
        color="curve:N",
    ).properties(width=420, height=300).save(str(RESULTS / "curve.png"), scale_factor=2)


def main() -> None:
    """Runs what is missing, then writes the result and its picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--shares", default="0.4,0.6,0.8,1.0")
    parser.add_argument("--random", type=int, default=2)
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--out", type=Path, default=Path("sweeps/curve"))
    arguments = parser.parse_args()
    shares, seeds = [float(share) for share in arguments.shares.split(",")], arguments.seeds.split(",")
    files = write_random(arguments.out, shares, arguments.random)
    table = sweep(arguments.out, arguments.data_root, shares, seeds, list(files))
    found = compare(table, files, shares)
    protocol = f"reduced: {DATA}, {SPACE}, {EPOCHS} final epochs; accuracies are shares, means over seeds on the curves"
    write_result("curve", {"protocol": protocol, "seeds": [int(s) for s in seeds], **found, "table": table})
    draw(found)


if __name__ == "__main__":
    main()
