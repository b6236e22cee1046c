"""Is the search better than chance? Against random, hand-made and otherwise chosen networks of the same cost.

`benchmarks/_opponents.py` has the protocols: ResNet fabric and neural fabric on CIFAR-10, and Fashion-MNIST, on which
nothing was tuned. For each budget, a share of the ResNet-20's multiply-adds, or of the full neural fabric's:

- `search`: the recipe in question, for each seed.
- `hand`: ResNets of 1 to 4 blocks a group, or neural fabrics of 1 to 3 columns, linearly between them.
- `random`: random connected sub-architectures, trained as long as the search trains what it found.
- `long`: the same ones, trained for as long as search and training together take: `--longer` times as many epochs, 1.6
  being the most that a search may take.
- `scratch`: what each search found, trained from fresh weights.
- `evolution`, `local`: regularised evolution and local search that know nothing of Γ, on the same shared weights with
  the same number of evaluations; their best candidates race, and the winner is trained as the search's.

Every run is kept in a sweep: a new recipe costs only its own runs, and parts that are not asked for are left out. Each
budget has a result file of its own.

    python -m benchmarks.quality --data-root DATA [--protocol resnet] [--recipe fast] [--shares 1.0,0.6,0.3]
        [--seeds 0,1,2] [--pairs 3] [--random 4 or 4,4,15] [--long 4] [--longer 1.6]
        [--parts hand,random,long,scratch,evolution,local] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from benchmarks._common import numbers, per_share, shares, summarise, write_result
from benchmarks._opponents import CHOOSERS, Opponents, Table, add_protocol, interpolated, mean_points
from budgetnet.records.folder import RunFolder
from budgetnet.strategies.named import choose
from budgetnet.strategies.recipes import Recipe

SHARES = {"resnet": (1.0, 0.6, 0.3), "neural": (0.3, 0.1), "fashion": (0.6, 0.3)}
PARTS = ("hand", "random", "long", "scratch", "evolution", "local")
PAIRED = ("scratch", "evolution", "local")
"""Parts with a run of their own for each seed of the search."""
FLOORS = {"random": 0.5, "long": 0.0, "evolution": 0.0, "local": 0.0}
"""Points of test accuracy by which the search must be ahead."""
WALL = 1.6
"""Time of a search over that of training what it found, at most."""
CONFIDENCE = 1.645
"""Standard errors below the mean that a lower 90 % bound (two-sided) lies."""


@dataclass(frozen=True)
class Comparison:
    """The runs of one recipe and of its opponents, made where they are missing."""

    opponents: Opponents
    recipe: str
    seeds: Sequence[int]
    random: Mapping[float, int] = field(default_factory=dict)
    """How many random networks of each budget."""
    long: Mapping[float, int] = field(default_factory=dict)
    """How many of them are also trained for longer."""
    longer: Mapping[float, float] = field(default_factory=dict)
    """How much longer: times as many epochs."""
    pairs: int | None = None
    """How many of the seeds, the first ones, the paired parts have; all if None."""

    def part(self, name: str, share: float) -> Table:
        """The rows of a part at a budget."""
        if name == "hand":
            return self.opponents.hand_made([0])
        if name == "random":
            return self.opponents.random(share, self.random[share])
        if name == "long":
            return self.opponents.random(share, self.long[share], self.longer[share])
        if name == "scratch":
            return self._scratch(share)
        if name in CHOOSERS:
            return self.opponents.chosen_by(name, self.recipe, share, self.seeds[: self.pairs])
        return self._search(self.recipe, share)

    def _search(self, recipe: str, share: float) -> Table:
        run = {"recipes": [recipe], "budgets": [self.opponents.protocol.budget(share)], "seeds": list(self.seeds)}
        return self.opponents.sweep(self._folder(recipe, share), [run], test_all=True)

    def _scratch(self, share: float) -> Table:
        folder = self._folder(self.recipe, share)
        found = [self.opponents.out / folder / row["run"] / "architecture.json" for row in self.part("search", share)]
        runs = [
            {"name": f"of-seed-{seed}", "architectures": [str(file)], "seeds": [seed]}
            for file, seed in list(zip(found, self.seeds, strict=True))[: self.pairs]
        ]
        return self.opponents.sweep(f"{folder}-scratch", runs)

    def wall(self, share: float) -> list[float]:
        """The time of each search over that of training what it found: its finish, and the epochs of its race."""
        recipe = choose(self.recipe, self.opponents.protocol.epochs, "classification")
        assert isinstance(recipe, Recipe)
        alone = recipe.finish_epochs / (recipe.finish_epochs - recipe.winner_epochs)
        ratios = []
        for row in self.part("search", share):
            phases = RunFolder(self.opponents.out / self._folder(self.recipe, share) / row["run"]).summary().phases
            ratios.append(sum(phases.values()) / (phases["finish"] * alone))
        return ratios

    @staticmethod
    def _folder(recipe: str, share: float) -> str:
        return f"{re.sub('[^A-Za-z0-9.]+', '-', recipe)}-{share:g}"


def difference(ours: Sequence[float], theirs: Sequence[float], paired: bool) -> dict[str, float]:
    """Mean difference in points, its standard error and the lower 90 % bound.

    Pairs share a seed; where theirs are fewer, they are of our first seeds.
    """
    if paired:
        values = [100 * (a - b) for a, b in zip(ours[: len(theirs)], theirs, strict=True)]
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        mean = fmean(values)
    else:
        mean = 100 * (fmean(ours) - fmean(theirs))
        error = math.sqrt(sum((100 * stdev(v)) ** 2 / len(v) if len(v) > 1 else math.nan for v in (ours, theirs)))
    used = len(theirs) if paired else len(ours)
    return {"points": mean, "standard_error": error, "lower_bound": mean - CONFIDENCE * error, "n": used}


def judged(search: Table, parts: Mapping[str, Table]) -> dict[str, Any]:
    """One budget: test accuracies in percent, differences in points, and which floors hold."""
    ours = [row["test"] for row in search]
    found: dict[str, Any] = {
        "search": summarise(100 * score for score in ours),
        "used": summarise(row["value"] / float(row["budget"].partition("<=")[2]) for row in search),
        "seconds": summarise(row["seconds"] for row in search),
    }
    for name, rows in parts.items():
        theirs = [row["test"] for row in rows]
        if name == "hand":
            curve = mean_points(rows, "space")
            theirs = [interpolated(curve, row["macs"]) for row in search]
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
    add_protocol(parser)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--shares", type=shares, help="of the protocol's multiply-adds; its own if not given")
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--pairs", type=int, help=f"seeds of {', '.join(PAIRED)}: the first so many, or all")
    parser.add_argument(
        "--random", type=numbers, default="4", help="random networks of each share, or one number for all"
    )
    parser.add_argument("--long", type=numbers, default="4", help="how many of them are also trained for longer")
    parser.add_argument("--longer", type=shares, default=str(WALL), help="how much longer: times as many epochs")
    parser.add_argument("--parts", default=",".join(PARTS))
    given = parser.parse_args()
    parts = [part for part in given.parts.split(",") if part]
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; use {', '.join(PARTS)}")
    if given.pairs is not None and not 1 <= given.pairs <= len(given.seeds):
        parser.error(f"--pairs {given.pairs} of {len(given.seeds)} seeds; give 1 to {len(given.seeds)}")
    asked = given.shares or SHARES[given.protocol]
    random, long, longer = (per_share(asked, values) for values in (given.random, given.long, given.longer))
    comparison = Comparison(Opponents.given(given), given.recipe, given.seeds, random, long, longer, given.pairs)
    for share in asked:
        search = comparison.part("search", share)
        others = {name: comparison.part(name, share) for name in parts}
        how_long = f"; long: {longer[share]:g} times as many" if "long" in parts else ""
        result = {
            "protocol": f"{comparison.opponents.protocol}{how_long}; accuracies in percent",
            "recipe": given.recipe,
            "seeds": given.seeds,
            "share": share,
            **judged(search, others),
            "wall_over_training": {**summarise(comparison.wall(share)), "bar": WALL},
            "tables": {"search": search, **others},
        }
        write_result("quality", result, variant=f"{given.protocol}_{100 * share:.0f}")


if __name__ == "__main__":
    main()
