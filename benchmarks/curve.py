"""Is the search's front above hand-made and random networks? A reduced sweep on CIFAR-10, as the paper's figures.

Searches at shares of the ResNet-20's multiply-adds, against ResNets of 1 to 4 blocks a group (the hand-made curve) and
random connected sub-architectures of each budget (the chance curve); `benchmarks/_opponents.py` has the protocol. The
front is chosen on validation data; curves are linear between their points. Finished runs are not run again.

    python -m benchmarks.curve --data-root DATA [--shares 0.4,0.6,0.8,1.0] [--random 2 or 12,2,2,2] [--seeds 0,1]
        [--resnet-seeds 0] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import RESULTS, add_data_root, numbers, per_share, shares, summarise, write_result
from benchmarks._opponents import RESNET, Opponents, Row, Table, interpolated, mean_point, mean_points


def compare(searches: Table, resnets: Table, random: Mapping[float, Table], maxima: Sequence[float]) -> dict[str, Any]:
    """What the front offers at each budget against both curves at the budget's multiply-adds."""
    hand, chance = sorted(mean_points(resnets, "space")), sorted(mean_point(rows) for rows in random.values())
    front = sorted((row for row in searches if row["front"]), key=lambda row: row["macs"])
    offers = []
    for maximum in maxima:
        best = [row for row in front if row["macs"] <= maximum][-1]
        curves = {"hand_made": interpolated(hand, maximum), "chance": interpolated(chance, maximum)}
        above = best["test"] > max(curves.values())
        offers.append({"budget": maximum, "run": best["run"], "test": best["test"], **curves, "above_both": above})
    return {
        "passed": all(offer["above_both"] for offer in offers),
        "budgets": offers,
        "front": [{key: row[key] for key in ("run", "macs", "validation", "test")} for row in front],
        "hand_made": hand,
        "chance": chance,
        "chance_spread": {f"{share:g}": summarise(row["test"] for row in rows) for share, rows in random.items()},
    }


def draw(found: Mapping[str, Any], random: Sequence[Row]) -> None:
    """results/curve.png."""
    import altair

    lines = [("hand-made ResNets", found["hand_made"]), ("random sub-architectures, mean", found["chance"])]
    lines.append(("front of the search", [(p["macs"], p["test"]) for p in found["front"]]))
    mean = [{"curve": name, "macs": x / 1e6, "accuracy": 100 * y} for name, points in lines for x, y in points]
    single = [{"macs": row["macs"] / 1e6, "accuracy": 100 * row["test"]} for row in random]
    x = altair.X("macs:Q", scale=altair.Scale(zero=False), title="multiply-adds (M)")
    y = altair.Y("accuracy:Q", scale=altair.Scale(zero=False), title="test accuracy (%)")
    curves = altair.Chart({"values": mean}).mark_line(point=True).encode(x=x, y=y, color="curve:N")
    dots = altair.Chart({"values": single}).mark_tick(color="gray", size=6).encode(x=x, y=y)
    (dots + curves).properties(width=420, height=300).save(str(RESULTS / "curve.png"), scale_factor=2)


def main() -> None:
    """Runs what is missing, then writes the result and its picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--shares", type=shares, default="0.4,0.6,0.8,1.0")
    parser.add_argument("--random", type=numbers, default="2", help="how many of each share, or one number for all")
    parser.add_argument("--seeds", type=numbers, default="0,1")
    parser.add_argument("--resnet-seeds", type=numbers, default="0")
    parser.add_argument("--out", type=Path, default=Path("sweeps/quality"))
    given = parser.parse_args()
    trained = Opponents(RESNET, given.out, given.data_root)
    searches = trained.sweep(
        "curve", [{"budgets": [RESNET.budget(share) for share in given.shares], "seeds": given.seeds}]
    )
    resnets = trained.hand_made(given.resnet_seeds)
    counts = per_share(given.shares, given.random)
    random = {share: trained.random(share, count) for share, count in counts.items()}
    found = compare(searches, resnets, random, [RESNET.maximum(share) for share in given.shares])
    protocol = f"{RESNET}; accuracies are shares, means over seeds on the curves"
    opponents = [row for rows in (resnets, *random.values()) for row in rows]
    seeds = {"search": given.seeds, "resnets": given.resnet_seeds, "random": [list(range(n)) for n in counts.values()]}
    write_result("curve", {"protocol": protocol, "seeds": seeds, **found, "table": [*searches, *opponents]})
    draw(found, [row for rows in random.values() for row in rows])


if __name__ == "__main__":
    main()
