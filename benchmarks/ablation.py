"""Which parts of the default recipe pay? Each is left out, with a Γ that hardly moves and with one that decides.

The protocols are those of `benchmarks/_opponents.py`. Every variant is run with every seed, so that differences are
paired; the file is written after each seed. `entropy` is that of Γ at the end of the search, in bits an edge.

    python -m benchmarks.ablation --data-root DATA [--protocol resnet] [--shares 0.3] [--seeds 0,1,2,3,4]
        [--variants default,race alone,…] [--epochs 16] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks._common import numbers, shares, summarise, write_result
from benchmarks._opponents import Opponents, Table, add_protocol
from benchmarks.quality import difference
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import read
from budgetnet.strategies.named import choose
from budgetnet.strategies.policy import default_rate
from budgetnet.strategies.recipes import Recipe

DECIDES = 16
"""Times the usual rate of Γ, at which it becomes deterministic within the search."""
BATCHES = 30_000 // 128
"""Of an epoch, for that rate."""
WITHOUT: Mapping[str, str] = {
    "": "",
    "without race": "racers=1",
    "without local search": "candidates=6",
    "without random racers": "random_racers=0",
}
"""Settings that leave a part of the recipe out."""
ALONE = "warmup_epochs=0,search_epochs=0,candidates=6,random_racers=4"
"""A race of random samples: no Γ, no shared weights, no local search."""


def variants(epochs: float) -> dict[str, str]:
    """Recipes by the names of the variants."""
    usual = choose("fast", epochs, "classification")
    assert isinstance(usual, Recipe)
    rate = f"policy_lr={DECIDES * default_rate(round(usual.search_epochs * BATCHES)):.5f}"
    found = {"default": "fast", "race alone": f"fast:{ALONE}"}
    for name, settings in WITHOUT.items():
        if name:
            found[name] = f"fast:{settings}"
        found[f"Γ decides {name}".strip()] = ",".join(part for part in (f"fast:{rate}", settings) if part)
    return found


@dataclass(frozen=True)
class Ablation:
    """The runs of all variants at one budget, made where they are missing."""

    opponents: Opponents
    share: float

    def row(self, variant: str, recipe: str, seed: int) -> dict[str, Any]:
        """One run: accuracies, seconds of each phase, and how sure Γ was."""
        budget = self.opponents.protocol.budget(self.share)
        name = f"{variant.replace(' ', '-')}-{self.share:g}-{self.opponents.protocol.epochs:g}-{seed}"
        run = {"recipes": [recipe], "budgets": [budget], "seeds": [seed]}
        (row,) = self.opponents.sweep(name, [run], test_all=True)
        folder = self.opponents.out / name / row["run"]
        records, _ = read(folder / "records.jsonl")
        seen = [r.values["entropy"] for r in records if r.phase == "search" and "entropy" in r.values]
        phases = dict(RunFolder(folder).summary().phases)
        kept = {key: row[key] for key in ("seed", "macs", "validation", "test", "seconds")}
        return {**kept, "phases": phases, "entropy": seen[-1] if seen else None}


def compared(tables: Mapping[str, Table], recipes: Mapping[str, str]) -> dict[str, Any]:
    """Test accuracy of every variant in percent, and the default's differences to it in points."""
    ours = [row["test"] for row in tables["default"]]
    found = {}
    for name, rows in tables.items():
        theirs = [row["test"] for row in rows]
        found[name] = {
            "recipe": recipes[name],
            "test": summarise(100 * value for value in theirs),
            "seconds": summarise(row["seconds"] for row in rows),
            "this_minus_default": difference(theirs, ours, paired=True),
        }
        sure = [row["entropy"] for row in rows if row["entropy"] is not None]
        if sure:
            found[name]["entropy"] = summarise(sure)
    return found


def main() -> None:
    """Runs what is missing; the file is written after every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser)
    parser.add_argument("--shares", type=shares, default="0.3")
    parser.add_argument("--seeds", type=numbers, default="0,1,2,3,4")
    parser.add_argument("--epochs", type=float, default=16.0)
    parser.add_argument("--variants", help="all if not given; the default is always among them")
    given = parser.parse_args()
    opponents = Opponents.given(given)
    opponents = replace(opponents, protocol=replace(opponents.protocol, epochs=given.epochs))
    recipes = variants(given.epochs)
    if given.variants:
        recipes = {name: recipes[name] for name in dict.fromkeys(["default", *given.variants.split(",")])}
    for share in given.shares:
        ablation, tables = Ablation(opponents, share), {name: Table() for name in recipes}
        for seed in given.seeds:
            for name, recipe in recipes.items():
                tables[name].append(ablation.row(name, recipe, seed))
            result = {
                "protocol": f"{opponents.protocol}; accuracies in percent",
                "seeds": given.seeds[: len(tables["default"])],
                "share": share,
                "variants": compared(tables, recipes),
                "tables": tables,
            }
            write_result("ablation", result, variant=f"{given.protocol}_{100 * share:.0f}_{given.epochs:g}")


if __name__ == "__main__":
    main()
