"""Does the cost shape what is found? Fabrics under different costs, as in the paper's figures.

Multiply-adds against parameters, at the same share of the full neural fabric (B-CNF): fine scales are where
multiply-adds are spent, while an edge has the same parameters at every scale. The paper shows networks of low cost, so
at the lowest share the kept edges at the two finest scales must be at least 20 points fewer for multiply-adds, on
average over the seeds. Steps on one machine against steps on four, at the same share of the full ResNet fabric
(B-ResNet): the network for four must have more live units per step of its critical path. Finished runs are not run
again; those under multiply-adds are the searches of `benchmarks.quality --protocol neural`.

    python -m benchmarks.costs_shape --data-root DATA [--shares 0.3,0.1] [--seeds 0,1,2] [--steps-seed 0] [--out sweeps]
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks._common import RESULTS, add_data_root, numbers, shares, summarise, write_result
from benchmarks._opponents import PROTOCOLS, Opponents, Row, Table
from budgetnet.costs import bind, steps
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw import Picture
from budgetnet.pictures.draw.output import render

NEURAL, RESNET = PROTOCOLS["neural"], PROTOCOLS["resnet"]
STEPS_BUDGETS = ("steps(1)<=70%", "steps(4)<=70%")
STEPS_EPOCHS = 8
POINTS = 20.0
"""By how much the share at the two finest scales is to differ."""
UNLIMITED = 10_000
"""Machines enough for anything: the ticks are then the critical path."""


def finest_share(architecture: Architecture) -> float:
    """The share of the live edges, in percent, that lead to a node of one of the two finest scales."""
    live = [edge for edge in architecture.graph.edges if edge.name in architecture.live().kept]
    return 100 * sum(int(edge.target.partition("s")[2]) < 2 for edge in live) / len(live)


def scale_counts(architecture: Architecture) -> list[str]:
    """Live edges of all edges that lead to each scale, finest first."""
    live, scales = architecture.live().kept, [int(e.target.partition("s")[2]) for e in architecture.graph.edges]
    kept = [s for e, s in zip(architecture.graph.edges, scales, strict=True) if e.name in live]
    return [f"{kept.count(scale)}/{scales.count(scale)}" for scale in range(max(scales) + 1)]


def parallel(net: SuperNetwork, architecture: Architecture) -> dict[str, float]:
    """Live units, the length of the critical path, and units per step of it."""
    units, path = steps(net, 1)(architecture), steps(net, UNLIMITED)(architecture)
    return {"live_units": units, "critical_path": path, "units_per_step": units / path}


def main() -> None:
    """Runs what is missing, then writes the result and two pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--shares", type=shares, default="0.3,0.1", help="of the neural fabric's full cost")
    parser.add_argument("--seeds", type=numbers, default="0,1,2", help="of the neural fabric's searches")
    parser.add_argument("--steps-seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("sweeps"))
    given = parser.parse_args()
    where = (given.out, given.data_root)
    by_steps = _steps(*where, given.steps_seed)
    by_scale = {f"{share:.0%}": _scales(*where, share, given.seeds) for share in sorted(given.shares)}
    lowest = next(iter(by_scale.values()))
    epochs = f"{NEURAL.epochs:g} final epochs for scales, {STEPS_EPOCHS} for steps"
    protocol = f"reduced: {NEURAL.data}; {NEURAL.space} and {RESNET.space}; {epochs}"
    passed = lowest["passed"] and by_steps["passed"]
    result = {
        "protocol": protocol,
        "seeds": {"scales": given.seeds, "steps": [given.steps_seed]},
        "passed": passed,
        "finest_scales": by_scale,
        "steps": by_steps,
    }
    write_result("costs_shape", result)


def _scales(out: Path, data_root: str, share: float, seeds: Sequence[int]) -> dict[str, Any]:
    fabric, net = Opponents(NEURAL, out / "quality-neural", data_root), NEURAL.build()
    table, found = [], []
    for cost, limit in (("macs", NEURAL.budget(share)), ("params", f"params<={share:.0%}")):
        folder = f"fast-{cost}-{share:g}"
        rows = fabric.sweep(folder, [{"budgets": [limit], "seeds": list(seeds)}], test_all=True)
        table += rows
        found += _found(net, fabric.out / folder, rows)
    pairs = list(zip(table, found, strict=True))
    draw(net, f"costs_macs_params_{100 * share:.0f}.png", [pair for pair in pairs if pair[0]["seed"] == seeds[0]])
    by_cost = {
        cost: [architecture for row, architecture in pairs if row["cost"] == cost] for cost in ("macs", "params")
    }
    shares = {cost: summarise(map(finest_share, networks)) for cost, networks in by_cost.items()}
    difference = shares["params"]["mean"] - shares["macs"]["mean"]
    return {
        "difference_in_points": difference,
        "bar": POINTS,
        "passed": difference >= POINTS,
        "share_of_kept_edges": shares,
        "kept_by_scale": {cost: [scale_counts(network) for network in networks] for cost, networks in by_cost.items()},
        "table": table,
    }


def _steps(out: Path, data_root: str, seed: int) -> dict[str, Any]:
    fabric, runs = Opponents(RESNET, out, data_root), {"budgets": STEPS_BUDGETS, "seeds": [seed]}
    net, table = RESNET.build(), fabric.sweep("steps", [runs], epochs=STEPS_EPOCHS)
    found = _found(net, out / "steps", table)
    draw(net, "costs_steps.png", list(zip(table, found, strict=True)))
    one, four = (parallel(net, architecture) for architecture in found)
    passed = four["units_per_step"] > one["units_per_step"]
    return {"passed": passed, "n=1": one, "n=4": four, "table": table}


def _found(net: SuperNetwork, folder: Path, table: Table) -> list[Architecture]:
    files = [folder / row["run"] / "architecture.json" for row in table]
    return [Architecture.from_json(net.graph, file.read_text(encoding="utf-8")) for file in files]


def draw(net: SuperNetwork, file: str, found: Sequence[tuple[Row, Architecture]]) -> None:
    """Networks side by side, each with the cost that it was found for."""
    pictures = []
    for row, architecture in found:
        title = f"{row['budget']}: {100 * row['validation']:.1f} % on validation data"
        pictures.append(_image(Picture(net, architecture, None, bind(row["cost"], net), title)))
    width, height = max(p.width for p in pictures), max(p.height for p in pictures)
    sheet = Image.new("RGB", (len(pictures) * width, height), "white")
    for i, picture in enumerate(pictures):
        sheet.paste(picture, (i * width, 0))
    RESULTS.mkdir(parents=True, exist_ok=True)
    sheet.save(RESULTS / file, optimize=True)


def _image(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(render(picture, ".png", "light"))).convert("RGB")


if __name__ == "__main__":
    main()
