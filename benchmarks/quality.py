"""Is the search better than chance? Against random, hand-made and otherwise chosen networks of the same cost.

`benchmarks/_opponents.py` has the protocol. For each budget, a share of the ResNet-20's multiply-adds:

- `search`: the recipe in question, for each seed.
- `random`: random connected sub-architectures, trained as long as the search trains what it found.
- `long`: the same ones, trained for 1.6 times as many epochs: the most that search and training together may take.
- `scratch`: what each search found, trained from fresh weights.
- `evolution`, `local`: regularised evolution and local search that know nothing of Γ, on the same shared weights with
  the same number of evaluations; what they choose is trained as the search's.

Every run is kept in a sweep: a new recipe costs only its own runs, and parts that are not asked for are left out.

    python -m benchmarks.quality --data-root DATA [--recipe fast] [--shares 1.0,0.6,0.3] [--seeds 0,1,2] [--random 4]
        [--parts random,long,scratch,evolution,local] [--out sweeps/quality]
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks._common import add_data_root, numbers, summarise, write_result
from benchmarks._opponents import (
    DATA,
    EPOCHS,
    RESNET20_MACS,
    SPACE,
    Table,
    interpolated,
    mean_points,
    sweep,
    train_random,
    train_resnets,
)

PARTS = ("random", "long", "scratch", "evolution", "local")
LONGER = 1.6
"""Epochs of `long` over those of the others."""
FLOORS = {"random": 0.5, "long": 0.0, "evolution": 0.0, "local": 0.0}
"""Points of test accuracy by which the search must be ahead."""
CONFIDENCE = 1.645
"""Standard errors below the mean that a lower 90 % bound (two-sided) lies."""


def budget(share: float) -> str:
    """Of a share of the ResNet-20."""
    return f"macs<={round(share * RESNET20_MACS)}"


class Comparison:
    """The runs of one recipe and of its opponents, made where they are missing."""

    def __init__(self, recipe: str, seeds: Sequence[int], random: int, out: Path, data_root: str) -> None:
        self.recipe, self.seeds, self.random, self.out, self.data_root = recipe, list(seeds), random, out, data_root

    def part(self, name: str, share: float) -> Table:
        """The rows of a part at a budget."""
        if name == "random":
            return train_random(self.out, self.data_root, share, self.random)
        if name == "long":
            return train_random(self.out, self.data_root, share, self.random, LONGER)
        if name == "scratch":
            return self._scratch(share)
        recipe = self.recipe if name == "search" else f"{self.recipe}{',' if ':' in self.recipe else ':'}settle={name}"
        return self._search(recipe, share)

    def _search(self, recipe: str, share: float) -> Table:
        run = {"recipes": [recipe], "budgets": [budget(share)], "seeds": self.seeds}
        return sweep(self._folder(recipe, share), self.data_root, [run], test_all=True)

    def _scratch(self, share: float) -> Table:
        folder = self._folder(self.recipe, share)
        files = [str(folder / row["run"] / "architecture.json") for row in self.part("search", share)]
        runs = [
            {"name": f"of-seed-{s}", "architectures": [f], "seeds": [s]} for f, s in zip(files, self.seeds, strict=True)
        ]
        return sweep(folder.with_name(folder.name + "-scratch"), self.data_root, runs)

    def _folder(self, recipe: str, share: float) -> Path:
        return self.out / f"{re.sub('[^A-Za-z0-9.]+', '-', recipe)}-{share:g}"


def difference(ours: Sequence[float], theirs: Sequence[float], paired: bool) -> dict[str, float]:
    """Mean difference in points, its standard error and the lower 90 % bound; pairs share a seed."""
    if paired:
        values = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        mean = fmean(values)
    else:
        mean = 100 * (fmean(ours) - fmean(theirs))
        error = math.sqrt(sum((100 * stdev(v)) ** 2 / len(v) if len(v) > 1 else math.nan for v in (ours, theirs)))
    return {"points": mean, "standard_error": error, "lower_bound": mean - CONFIDENCE * error, "n": len(ours)}


def judged(search: Table, parts: dict[str, Table], hand: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """One budget: test accuracies in percent, differences in points, and which floors hold."""
    ours = [row["test"] for row in search]
    found: dict[str, Any] = {
        "search": summarise(100 * score for score in ours),
        "used": summarise(row["value"] / float(row["budget"].partition("<=")[2]) for row in search),
        "hand_made": difference(ours, [interpolated(hand, row["macs"]) for row in search], paired=True),
    }
    for name, rows in parts.items():
        theirs = [row["test"] for row in rows]
        compared = difference(ours, theirs, paired=name not in ("random", "long"))
        found[name] = {**summarise(100 * score for score in theirs), "search_minus_this": compared}
        if name in ("random", "long"):
            found[name]["best_by_validation"] = 100 * max(rows, key=lambda row: row["validation"])["test"]
        if name in FLOORS:
            ahead = compared["points"] >= FLOORS[name]
            found[name]["floor_holds"] = ahead and (name != "random" or compared["lower_bound"] > 0)
    return found


def main() -> None:
    """Runs what is missing, then writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--shares", default="1.0,0.6,0.3")
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--random", type=int, default=4)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("sweeps/quality"))
    given = parser.parse_args()
    parts = [part for part in given.parts.split(",") if part]
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; use {', '.join(PARTS)}")
    seeds = given.seeds
    comparison = Comparison(given.recipe, seeds, given.random, given.out, given.data_root)
    hand = mean_points(train_resnets(given.out, given.data_root, [0]), "space")
    budgets, tables = {}, {}
    for share in (float(share) for share in given.shares.split(",")):
        made = {name: comparison.part(name, share) for name in ("search", *parts)}
        search = made.pop("search")
        budgets[f"{share:g}"] = judged(search, made, hand)
        tables[f"{share:g}"] = {"search": search, **made}
    protocol = f"reduced: {DATA}, {SPACE}, {EPOCHS} final epochs; long: {LONGER * EPOCHS:g}; accuracies in percent"
    write_result(
        "quality",
        {"protocol": protocol, "recipe": given.recipe, "seeds": seeds, "budgets": budgets, "tables": tables},
    )


if __name__ == "__main__":
    main()
