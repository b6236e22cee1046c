"""The tables of search quality, from the result files of `quality` and `ranking`: wins and losses alike.

python -m benchmarks._quality_table             # prints them: docs/results.md, then docs/experiments.md
python -m benchmarks._quality_table --write     # puts each in place of the one with the same head
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks._common import RESULTS, ROOT

SPACES = {"resnet": "ResNet fabric", "neural": "neural fabric", "fashion": "Fashion-MNIST"}
USED = 0.95
NOT_MEASURED = "–"
SUMMARY = (
    "space, share of multiply-adds",
    "search, test accuracy",
    "− random ones (≥ 0.5, bound > 0)",
    "− random ones with the whole wall time (≥ 0)",
    "− evolution (≥ 0)",
    "− local search (≥ 0)",
    "budget used (≥ 95 %)",
    "wall time / training (≤ 1.6)",
    "rank correlation of shared weights (≥ 0.5); of Γ; of capacity",
)
CHANCE = (
    "space, share",
    "search",
    "random",
    "search − random",
    "long",
    "search − long",
    "best random one by validation data",
    "hand-made, interpolated",
    "budget used",
    "wall time / training",
)
OTHERS = (
    "space, share",
    "evolution",
    "search − evolution",
    "local search",
    "search − local search",
    "from scratch",
    "search − scratch",
)
Found = Mapping[str, Any]
Cells = tuple[str, ...]


def summary(protocol: str, found: Found) -> Cells:
    """A budget in docs/results.md. Bold misses its floor; a dash was not measured."""
    search, wall = found["search"], found["wall_over_training"]
    return (
        _budget(protocol, found),
        f"{search['mean']:.1f} % ± {search['std']:.1f} ({search['n']})",
        *(_against(found.get(opponent)) for opponent in ("random", "long", "evolution", "local")),
        _held(f"{100 * found['used']['mean']:.1f} %", found["used"]["mean"] >= USED),
        _held(f"{wall['mean']:.2f}", wall["mean"] <= wall["bar"]),
        _ranked(protocol, found["share"]),
    )


def chance(protocol: str, found: Found) -> Cells:
    """A budget, against networks that nobody searched for."""
    random, hand, wall = found.get("random"), found.get("hand"), found["wall_over_training"]
    return (
        _budget(protocol, found),
        f"**{_scores(found['search'])}**",
        *_both(random),
        *_both(found.get("long")),
        f"{random['best_by_validation']:.1f}" if random else NOT_MEASURED,
        f"{hand['mean']:.1f}" if hand else NOT_MEASURED,
        f"{100 * found['used']['mean']:.1f} %",
        f"{wall['mean']:.2f}, {wall['min']:.2f} to {wall['max']:.2f}",
    )


def others(protocol: str, found: Found) -> Cells:
    """A budget, against other ways to choose on the same shared weights, and against fresh weights."""
    cells = [cell for name in ("evolution", "local", "scratch") for cell in _both(found.get(name))]
    return _budget(protocol, found), *cells


PAGES: Mapping[Path, Mapping[Cells, Callable[[str, Found], Cells]]] = {
    ROOT / "docs" / "results.md": {SUMMARY: summary},
    ROOT / "docs" / "experiments.md": {CHANCE: chance, OTHERS: others},
}


def table(head: Cells, row: Callable[[str, Found], Cells]) -> str:
    """A row for every budget that was measured."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *(row(protocol, found) for protocol, found in _results())]
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
        for result in sorted(results, key=lambda result: -result["share"]):
            yield protocol, result


def _budget(protocol: str, found: Found) -> str:
    return f"{SPACES[protocol]}, {found['share']:.0%}".replace("%", " %")


def _scores(part: Found) -> str:
    return f"{part['mean']:.1f} ± {part['std']:.1f} ({part['n']})"


def _difference(part: Found) -> str:
    found = part["search_minus_this"]
    return f"{found['points']:+.1f} ± {found['standard_error']:.1f}".replace("-", "−")


def _both(part: Found | None) -> Cells:
    """Accuracies, and how far the search is ahead of them, at least."""
    if part is None:
        return NOT_MEASURED, NOT_MEASURED
    bound = f"{part['search_minus_this']['lower_bound']:+.1f}".replace("-", "−")
    return _scores(part), f"{_difference(part)}, above {bound}"


def _against(part: Found | None) -> str:
    return _held(f"{_difference(part)} ({part['n']})", part["floor_holds"]) if part else NOT_MEASURED


def _ranked(protocol: str, share: float) -> str:
    path = RESULTS / f"ranking_{protocol}_{100 * share:.0f}.json"
    if not path.exists():
        return NOT_MEASURED
    result = json.loads(path.read_text(encoding="utf-8"))
    shared, *more = (
        f"{found['mean']:.2f}" if (found := result["spearman"].get(key)) else NOT_MEASURED
        for key in ("choose_after", "policy_learned", "capacity")
    )
    known = "; ".join([_held(shared, result["passed"]), *more])
    return f"{known} ({result['from_scratch']['n']})".replace("-", "−")


def _held(text: str, holds: bool) -> str:
    return text if holds else f"**{text}**"


if __name__ == "__main__":
    for page, tables in PAGES.items():
        for head, row in tables.items():
            made = table(head, row)
            print(made, end="\n\n")
            if "--write" in sys.argv[1:]:
                page.write_text(replaced(page.read_text(encoding="utf-8"), made), encoding="utf-8")
