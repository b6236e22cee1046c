"""Does the cost shape what is found? Neural fabrics (B-CNF) under different costs, as in the paper's figures.

Multiply-adds against parameters, at the same share of the full fabric: fine scales are where multiply-adds are spent,
while an edge has the same parameters at every scale, so the share of kept edges at the two finest scales must be at
least 20 points lower for multiply-adds. Steps on one machine against steps on four, at the same share: the network for
four must have more live units per step of its critical path. Finished runs are not run again.

    python -m benchmarks.costs_shape --data-root DATA [--seed 0] [--out sweeps/costs-shape]
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from benchmarks._common import RESULTS, add_data_root, write_result
from benchmarks._opponents import DATA, Table, sweep
from budgetnet.costs import bind, steps
from budgetnet.draw import Picture
from budgetnet.draw.output import render
from budgetnet.graph import Architecture
from budgetnet.spaces import build
from budgetnet.supernet import SuperNetwork

SPACE = "neural-fabric:width=8,scales=5,filters=16"
BUDGETS, EPOCHS = ("macs<=30%", "params<=30%"), 16
STEPS, STEPS_EPOCHS = ("steps(1)<=40%", "steps(4)<=40%"), 8
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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("sweeps/costs-shape"))
    given = parser.parse_args()
    runs = [{"budgets": BUDGETS, "epochs": EPOCHS}, {"budgets": STEPS, "epochs": STEPS_EPOCHS}]
    table = sweep(given.out, given.data_root, runs, space=SPACE, seeds=[given.seed])
    net = build(SPACE, (3, 16, 16), 10)
    files = [given.out / row["run"] / "architecture.json" for row in table]
    found = [Architecture.from_json(net.graph, file.read_text(encoding="utf-8")) for file in files]
    for_macs, for_params, for_one, for_four = found
    difference = finest_share(for_params) - finest_share(for_macs)
    one, four = parallel(net, for_one), parallel(net, for_four)
    write_result(
        "costs_shape",
        {
            "protocol": f"reduced: {DATA}, {SPACE}; {EPOCHS} final epochs ({STEPS_EPOCHS} for steps), one seed",
            "seeds": [given.seed],
            "finest_scales": {
                "difference_in_points": difference,
                "share_of_kept_edges_for_macs": finest_share(for_macs),
                "share_of_kept_edges_for_params": finest_share(for_params),
                "kept_by_scale_for_macs": scale_counts(for_macs),
                "kept_by_scale_for_params": scale_counts(for_params),
                "bar": POINTS,
                "passed": difference >= POINTS,
            },
            "steps": {"n=1": one, "n=4": four, "passed": four["units_per_step"] > one["units_per_step"]},
            "passed": difference >= POINTS and four["units_per_step"] > one["units_per_step"],
            "table": table,
        },
    )
    draw(net, "costs_macs_params.png", table[:2], found[:2])
    draw(net, "costs_steps.png", table[2:], found[2:])


def draw(net: SuperNetwork, file: str, rows: Table, found: Sequence[Architecture]) -> None:
    """Networks side by side, each with the cost that it was found for."""
    pictures = []
    for row, architecture in zip(rows, found, strict=True):
        title = f"{row['budget']}: {100 * row['validation']:.1f} % on validation data"
        pictures.append(_image(Picture(net, architecture, None, bind(row["cost"], net), title)))
    sheet = Image.new("RGB", (sum(p.width for p in pictures), max(p.height for p in pictures)), "white")
    for i, picture in enumerate(pictures):
        sheet.paste(picture, (sum(p.width for p in pictures[:i]), 0))
    sheet.save(RESULTS / file, optimize=True)


def _image(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(render(picture, ".png", "light"))).convert("RGB")


if __name__ == "__main__":
    main()
