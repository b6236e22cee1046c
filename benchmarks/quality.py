"""Is the search better than chance? Against random, hand-made and otherwise chosen networks of the same cost.

`benchmarks/_opponents.py` has the protocols: ResNet fabric and neural fabric on CIFAR-10, and Fashion-MNIST, on which
nothing was tuned. For each budget, a share of the ResNet-20's multiply-adds, or of the full neural fabric's:

- `search`: the recipe in question, for each seed.
- `hand`: ResNets of 1 to 4 blocks a group, or neural fabrics of 1 to 3 columns, linearly between them.
- `random`: random connected sub-architectures, trained for as many epochs as the search trains what it found.
- `timed`: the same ones, one for each seed, trained for as many seconds as the whole search of that seed took.
- `scratch`: what each search found, trained from fresh weights.

Every run is kept in a sweep: a new recipe costs only its own runs, and parts that are not asked for are left out. Each
budget and length has a result file of its own, written after each run, and what it has is not run again.
`--searches` takes the searches from another result file that has them with their seconds by phase.

    python -m benchmarks.quality --data-root DATA [--protocol resnet] [--shares 0.3] [--epochs 16]
        [--seeds 0,1,2,3,4] [--random 4] [--parts hand,random,timed,scratch] [--searches FILE:VARIANT] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from benchmarks._common import RESULTS, numbers, per_share, save_result, shares, summarise
from benchmarks._opponents import Opponents, Table, add_protocol, interpolated, mean_points
from budgetnet.records.folder import RunFolder
from budgetnet.strategies.recipes import fast

SHARES = {"resnet": (1.0, 0.6, 0.3), "neural": (0.3, 0.1), "fashion": (0.6, 0.3)}
PARTS = ("hand", "random", "timed", "scratch")
PAIRED = ("timed", "scratch")
"""Parts with a run of their own for each seed of the search."""
FLOORS = {"random": 0.5, "timed": 0.0}
"""Points of test accuracy by which the search must be ahead."""
WALLS = {16.0: 1.5, 64.0: 1.2}
"""Time of a search over that of training what it found, at most, by the epochs of that training."""
CONFIDENCE = 1.645
"""Standard errors below the mean that a lower 90 % bound (two-sided) lies."""


@dataclass
class Comparison:
    """The runs of the default recipe and of its opponents at one budget, made where they are missing."""

    opponents: Opponents
    share: float
    tables: dict[str, Table] = field(default_factory=dict)
    """Rows by part; those of paired parts have the seed of their search."""

    @property
    def file(self) -> str:
        """The variant of the result."""
        return f"{self.opponents.protocol.name}_{100 * self.share:.0f}_{self.opponents.protocol.epochs:g}"

    def missing(self, part: str, seed: int) -> bool:
        """Whether a part has no row for a seed yet."""
        return not any(row["seed"] == seed for row in self.tables.setdefault(part, []))

    def search(self, seed: int) -> dict[str, Any]:
        """One search, with what it took."""
        name = f"search-{self.share:g}-{self.opponents.protocol.epochs:g}-{seed}"
        run = {"recipes": ["fast"], "budgets": [self.opponents.protocol.budget(self.share)], "seeds": [seed]}
        (row,) = self.opponents.sweep(name, [run], test_all=True)
        folder = self.opponents.out / name / row["run"]
        return {**self.searched(row, RunFolder(folder).summary().phases), "folder": f"{name}/{row['run']}"}

    def searched(self, row: Mapping[str, Any], phases: Mapping[str, float]) -> dict[str, Any]:
        """A row of a search: scores, its share of the budget, and its time over that of training what it found."""
        kept = {key: row[key] for key in ("seed", "macs", "validation", "test")}
        recipe = fast(self.opponents.protocol.epochs)
        alone = phases["finish"] * recipe.finish_epochs / (recipe.finish_epochs - recipe.winner_epochs)
        used = row["macs"] / self.opponents.protocol.maximum(self.share)
        return {**kept, "used": used, "phases": dict(phases), "wall": sum(phases.values()) / alone}

    def paired(self, part: str, search: Mapping[str, Any]) -> dict[str, Any]:
        """What a search of a seed is compared with."""
        if part == "timed":
            row = self.opponents.timed(self.share, search["seed"], sum(search["phases"].values()))
        else:
            file = self.opponents.out / search["folder"] / "architecture.json"
            run = {"architectures": [str(file)], "seeds": [search["seed"]]}
            (row,) = self.opponents.sweep(f"scratch-{file.parent.parent.name}", [run])
        return {key: row[key] for key in ("seed", "macs", "validation", "test", "seconds")}

    def save(self, seeds: Sequence[int]) -> None:
        """Writes what there is."""
        parts = {name: rows for name, rows in self.tables.items() if rows and name != "search"}
        ordered = {part: sorted(rows, key=lambda row: row["seed"]) for part, rows in parts.items() if part in PAIRED}
        search = sorted(self.tables["search"], key=lambda row: row["seed"])
        found = judged(search, {**parts, **ordered})
        wall = WALLS.get(self.opponents.protocol.epochs)
        result = {
            "protocol": f"{self.opponents.protocol}; accuracies in percent",
            "share": self.share,
            "epochs": self.opponents.protocol.epochs,
            "seeds": list(seeds),
            **found,
            "wall_over_training": {**found["wall_over_training"], "bar": wall},
            "tables": self.tables,
        }
        save_result("quality", result, variant=self.file)


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
        "used": summarise(row["used"] for row in search),
        "seconds": summarise(sum(row["phases"].values()) for row in search),
        "wall_over_training": summarise(row["wall"] for row in search),
    }
    for name, rows in parts.items():
        theirs = [row["test"] for row in rows]
        if name == "hand":
            curve = mean_points(rows, "space")
            theirs = [interpolated(curve, row["macs"]) for row in search]
        compared = difference(ours, theirs, paired=name != "random")
        found[name] = {**summarise(100 * score for score in theirs), "search_minus_this": compared}
        if name == "random":
            found[name]["best_by_validation"] = 100 * max(rows, key=lambda row: row["validation"])["test"]
        if name in FLOORS:
            ahead = compared["points"] >= FLOORS[name]
            found[name]["floor_holds"] = ahead and (name != "random" or compared["lower_bound"] > 0)
    return found


def kept(comparison: Comparison, source: str | None) -> dict[str, Table]:
    """The rows of an earlier run, and searches of another file."""
    path = RESULTS / f"quality_{comparison.file}.json"
    tables: dict[str, Table] = json.loads(path.read_text(encoding="utf-8"))["tables"] if path.exists() else {}
    if source is not None:
        file, _, variant = source.partition(":")
        other = json.loads((RESULTS / file).read_text(encoding="utf-8"))
        known = {row["seed"] for row in tables.setdefault("search", [])}
        rows = [row for row in other["tables"][variant] if row["seed"] not in known]
        tables["search"] += [{**comparison.searched(row, row["phases"]), "of": source} for row in rows]
    return tables


def run(comparison: Comparison, seeds: Sequence[int], parts: Sequence[str], random: int) -> None:
    """Runs what is missing at one budget, a seed at a time; parts that all seeds share come first."""
    shared: dict[str, Callable[[], Table]] = {
        "hand": lambda: comparison.opponents.hand_made([0]),
        "random": lambda: comparison.opponents.random(comparison.share, random),
    }
    comparison.tables |= {part: shared[part]() for part in parts if part in shared}
    for seed in seeds:
        if comparison.missing("search", seed):
            comparison.tables["search"].append(comparison.search(seed))
            comparison.save(seeds)
        search = next(row for row in comparison.tables["search"] if row["seed"] == seed)
        for part in PAIRED:
            if part in parts and comparison.missing(part, seed) and (part == "timed" or "folder" in search):
                comparison.tables[part].append(comparison.paired(part, search))
                comparison.save(seeds)
        print(f"{comparison.file}, seed {seed}: {100 * search['test']:.2f} %", flush=True)
    comparison.save(seeds)


def main() -> None:
    """Runs what is missing; the result is written after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser)
    parser.add_argument("--shares", type=shares, help="of the protocol's multiply-adds; its own if not given")
    parser.add_argument("--epochs", type=float, help="of what is found; the protocol's own if not given")
    parser.add_argument("--seeds", type=numbers, default="0,1,2,3,4")
    parser.add_argument(
        "--random", type=numbers, default="4", help="random networks of each share, or one number for all"
    )
    parser.add_argument("--searches", help="FILE:VARIANT, searches of this recipe and budget in another result file")
    parser.add_argument("--parts", default=",".join(PARTS))
    given = parser.parse_args()
    parts = [part for part in given.parts.split(",") if part]
    unknown = sorted(set(parts) - set(PARTS))
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; use {', '.join(PARTS)}")
    asked, opponents = given.shares or SHARES[given.protocol], Opponents.given(given)
    protocol = replace(opponents.protocol, epochs=given.epochs or opponents.protocol.epochs)
    for share, random in per_share(asked, given.random).items():
        comparison = Comparison(replace(opponents, protocol=protocol), share)
        comparison.tables = kept(comparison, given.searches)
        run(comparison, given.seeds, parts, random)


if __name__ == "__main__":
    main()
