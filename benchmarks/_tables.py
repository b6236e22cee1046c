"""Tables of the documentation, made from result files: wins and losses alike.

python -m benchmarks._tables             # prints them
python -m benchmarks._tables --write     # puts each in place of the one with the same head
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks._common import RESULTS, ROOT

SPACES = {"resnet": "ResNet fabric", "neural": "neural fabric", "fashion": "Fashion-MNIST"}
USED = 0.95
NOT_MEASURED = "–"
SUMMARY = (
    "space, share of multiply-adds",
    "final epochs",
    "search, test accuracy",
    "− random ones, same epochs (≥ 0.5, bound > 0)",
    "− random ones, same seconds (≥ 0)",
    "− hand-made, interpolated",
    "budget used (≥ 95 %)",
    "wall time / training (≤ 1.5 at 16 epochs, ≤ 1.2 at 64)",
)
ABLATIONS = {
    "ablation_resnet_30_16": "ResNet fabric, 30 %, now",
    "ablation_neural_10_16": "neural fabric, 10 %, now",
    "ablation_resnet_100_16": "ResNet fabric, 100 %, now",
}
PARTS = ("validation", "test")
Found = Mapping[str, Any]
Cells = tuple[str, ...]


def summary(protocol: str, found: Found) -> Cells:
    """A budget. Bold misses its floor; a dash was not measured."""
    search, wall = found["search"], found["wall_over_training"]
    return (
        f"{SPACES[protocol]}, {found['share']:.0%}".replace("%", " %"),
        f"{found['epochs']:g}",
        f"{search['mean']:.1f} % ± {search['std']:.1f} ({search['n']})",
        *(_against(found.get(opponent)) for opponent in ("random", "timed", "hand")),
        _held(f"{100 * found['used']['mean']:.1f} %", found["used"]["mean"] >= USED),
        _held(f"{wall['mean']:.2f}", wall["bar"] is None or wall["mean"] <= wall["bar"]),
    )


def quality() -> str:
    """Searches against random networks: docs/results.md."""
    return table(SUMMARY, [summary(protocol, found) for protocol, found in _results()])


def ablation(name: str, title: str, other: str) -> str:
    """One ablation: every variant, and its difference to the first."""
    head = (f"{title}", "test, %", f"minus {other}", "Γ's entropy, bits", "cost of Γ's samples / budget")
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["variants"]
    return table(head, [_variant(variant, about) for variant, about in found.items()])


def _variant(name: str, about: Found) -> Cells:
    test, known = about["test"], {key: about[key]["mean"] for key in ("entropy", "used") if key in about}
    difference = _against({"search_minus_this": about["this_minus_default"], "n": test["n"]})
    return (
        name,
        f"{test['mean']:.1f} ± {test['std']:.1f} ({test['n']})",
        "" if about["this_minus_default"]["standard_error"] == 0 else difference.rpartition(" ")[0],
        *(f"{known[key]:.2f}" if key in known else NOT_MEASURED for key in ("entropy", "used")),
    )


def ablations() -> str:
    """Every variant minus the default over all pairs of the protocols that it was run on."""
    gaps: dict[str, dict[str, list[float]]] = {}
    for name in ABLATIONS:
        rows = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["tables"]
        first = {row["seed"]: row for row in rows.pop("default")}
        for variant, mine in rows.items():
            found = gaps.setdefault(variant, {part: [] for part in PARTS})
            for part, values in found.items():
                values += [100 * (row[part] - first[row["seed"]][part]) for row in mine]
    head = ("all budgets, now, minus the default", *(f"{part}, points" for part in PARTS), "pairs")
    return table(head, [(name, *map(_gap, found.values()), str(len(found["test"]))) for name, found in gaps.items()])


def _gap(values: Sequence[float]) -> str:
    return f"{fmean(values):+.1f} ± {stdev(values) / math.sqrt(len(values)):.1f}".replace("-", "−")


def paper_method(name: str, title: str) -> str:
    """The paper's method with one setting changed at a time: docs/reproduction.md."""
    head = (title, "validation, %", "test, %", "cost / budget", "entropy, bits", "dead")
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["variants"]
    rows = []
    for variant, about in found.items():
        spread = [_spread(about[key]) for key in ("validation", "test")]
        more = [f"{about[key]['mean']:.2f}" if key in about else NOT_MEASURED for key in ("used", "entropy", "dead")]
        rows.append((f"{variant} ({about['test']['n']})", *spread, *more))
    return table(head, rows)


def _spread(found: Found) -> str:
    return f"{found['mean']:.1f}" if found["n"] < 2 else f"{found['mean']:.1f} ± {found['std']:.1f}"


PAGES: Mapping[Path, Sequence[Callable[[], str]]] = {
    ROOT / "docs" / "results.md": [quality],
    ROOT / "docs" / "experiments.md": [
        functools.partial(ablation, "recipe_parts_resnet_30_16", "ResNet fabric, 30 %", "the default of then"),
        functools.partial(ablation, "recipe_parts_neural_10_16", "neural fabric, 10 %", "the default of then"),
        *(functools.partial(ablation, name, title, "the default") for name, title in ABLATIONS.items()),
        ablations,
    ],
    ROOT / "docs" / "reproduction.md": [
        functools.partial(paper_method, "paper_method", "B-ResNet, 60 % of the multiply-adds"),
        functools.partial(paper_method, "paper_method_b-cnf", "B-CNF, a quarter of CNF W=2"),
    ],
}


def table(head: Cells, rows: Sequence[Cells]) -> str:
    """In Markdown."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def replaced(text: str, made: str) -> str:
    """A text whose table with the same head is now this one."""
    lines = text.splitlines()
    first = lines.index(made.splitlines()[0])
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:first], made, *lines[last:], ""])


def _results() -> Iterator[tuple[str, Found]]:
    for protocol in SPACES:
        files = RESULTS.glob(f"quality_{protocol}_*.json")
        results = [json.loads(path.read_text(encoding="utf-8")) for path in files]
        for result in sorted(results, key=lambda result: (result["epochs"], -result["share"])):
            yield protocol, result


def _against(part: Found | None) -> str:
    if part is None:
        return NOT_MEASURED
    found = part["search_minus_this"]
    error = "" if found["n"] < 2 else f" ± {found['standard_error']:.1f}"
    return _held(f"{found['points']:+.1f}{error} ({part['n']})".replace("-", "−"), part.get("floor_holds", True))


def _held(text: str, holds: bool) -> str:
    return text if holds else f"**{text}**"


if __name__ == "__main__":
    for page, made in PAGES.items():
        for make in made:
            print(text := make(), end="\n\n")
            if "--write" in sys.argv[1:]:
                page.write_text(replaced(page.read_text(encoding="utf-8"), text), encoding="utf-8")
