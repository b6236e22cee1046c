"""Which parts of the default recipe pay? Each is left out.

The protocols are those of `benchmarks/_opponents.py`. Every variant is run with every seed, so that differences are
paired. The file is written after each run, and what it has is not run again. `entropy` is that of Γ at the end of the
search, in bits an edge; `used` is the mean cost of Γ's samples then, as a share of the budget. The files
`recipe_parts_*.json` are of this program at an earlier commit, whose recipe had more parts to leave out: they are why
it has fewer now.

    python -m benchmarks.ablation --data-root DATA [--protocol resnet] [--shares 0.3] [--seeds 0,1,2,3,4]
        [--variants default,race alone,…] [--epochs 16] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks._common import RESULTS, numbers, save_result, shares, summarise
from benchmarks._opponents import Opponents, Table, add_protocol
from benchmarks.quality import difference
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import read
from budgetnet.strategies.named import choose
from budgetnet.strategies.policy import default_rate
from budgetnet.strategies.recipes import Recipe

DEFAULT = "default"
BATCHES = 30_000 // 128
"""Of an epoch, for Γ's rate."""
SLOWER = {"Γ at a quarter of its rate": 4, "Γ hardly moves": 16}
"""By how much Γ's rate is divided."""
LAST = 50
"""Steps at the end of a search over which the cost of samples is averaged."""


def variants(epochs: float) -> dict[str, str]:
    """Recipes by the names of the variants."""
    usual = choose("fast", epochs, "classification")
    assert isinstance(usual, Recipe)
    rate = default_rate(round(usual.search_epochs * BATCHES))
    return {
        DEFAULT: "fast",
        "race alone": "fast:warmup_epochs=0,search_epochs=0",
        "without the race": "fast:racers=1",
        **{name: f"fast:policy_lr={rate / slower:.5f}" for name, slower in SLOWER.items()},
    }


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
        seen = [r.values for r in records if r.phase == "search"]
        kept = {key: row[key] for key in ("seed", "macs", "validation", "test", "seconds")}
        return {
            **kept,
            "recipe": recipe,
            "phases": dict(RunFolder(folder).summary().phases),
            "entropy": next((values["entropy"] for values in reversed(seen) if "entropy" in values), None),
            "used": _used(seen),
        }


def _used(seen: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean cost of the samples of the last steps, as a share of the budget."""
    shares = [values["cost/macs"] / values["target/macs"] for values in seen if "target/macs" in values]
    last = shares[-LAST:]
    return sum(last) / len(last) if last else None


def compared(tables: Mapping[str, Table], recipes: Mapping[str, str]) -> dict[str, Any]:
    """Test accuracy of every variant in percent, and its differences to the default in points, seed by seed."""
    first = {row["seed"]: row["test"] for row in tables[DEFAULT]}
    found = {}
    for name in recipes:
        rows = [row for row in tables.get(name, ()) if row["seed"] in first]
        if not rows:
            continue
        found[name] = {
            "recipe": recipes[name],
            "test": summarise(100 * row["test"] for row in rows),
            "seconds": summarise(row["seconds"] for row in rows),
            "this_minus_default": difference(
                [row["test"] for row in rows], [first[row["seed"]] for row in rows], paired=True
            ),
        }
        for key in ("entropy", "used"):
            known = [row[key] for row in rows if row.get(key) is not None]
            if known:
                found[name][key] = summarise(known)
    return found


def kept_rows(file: str, recipes: Mapping[str, str]) -> dict[str, Table]:
    """The rows of an earlier run by variant, those of the same recipe."""
    path = RESULTS / file
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    said = {name: about["recipe"] for name, about in before.get("variants", {}).items()}
    rows = before.get("tables", {})
    return {
        name: [row for row in rows.get(name, ()) if row.get("recipe", said.get(name)) == recipe]
        for name, recipe in recipes.items()
    }


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
    asked = given.variants.split(",") if given.variants else list(recipes)
    for share in given.shares:
        variant = f"{given.protocol}_{100 * share:.0f}_{given.epochs:g}"
        ablation, tables = Ablation(opponents, share), kept_rows(f"ablation_{variant}.json", recipes)
        for seed in given.seeds:
            for name in dict.fromkeys([DEFAULT, *asked]):
                if any(row["seed"] == seed for row in tables[name]):
                    continue
                tables[name].append(ablation.row(name, recipes[name], seed))
                result = {
                    "protocol": f"{opponents.protocol}; accuracies in percent",
                    "share": share,
                    "variants": compared(tables, recipes),
                    "tables": tables,
                }
                save_result("ablation", result, variant=variant)
                print(f"{variant}, seed {seed}, {name}: {100 * tables[name][-1]['test']:.2f} %", flush=True)


if __name__ == "__main__":
    main()
