"""The README's table of search quality, from the result files of `quality` and `ranking`: wins and losses alike.

python -m benchmarks._quality_table             # prints it
python -m benchmarks._quality_table --write     # puts it into the README in place of the one that is there
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks._common import RESULTS, ROOT

SPACES = {"resnet": "ResNet fabric", "neural": "neural fabric", "fashion": "Fashion-MNIST"}
OPPONENTS = ("random", "long", "evolution", "local")
HEAD = (
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
USED = 0.95
README = ROOT / "README.md"


def table() -> str:
    """A row for every budget that was measured. Bold misses its floor; a dash was not measured."""
    lines = [HEAD, ("---", *["---:"] * (len(HEAD) - 1))]
    for protocol in SPACES:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob(f"quality_{protocol}_*.json")]
        for result in sorted(found, key=lambda result: -result["share"]):
            lines.append(row(protocol, result))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(protocol: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """What was measured at a budget."""
    share, search, wall = found["share"], found["search"], found["wall_over_training"]
    return (
        f"{SPACES[protocol]}, {share:.0%}".replace("%", " %"),
        f"{search['mean']:.1f} % ± {search['std']:.1f} ({search['n']})",
        *(_against(found.get(opponent)) for opponent in OPPONENTS),
        _held(f"{100 * found['used']['mean']:.1f} %", found["used"]["mean"] >= USED),
        _held(f"{wall['mean']:.2f}", wall["mean"] <= wall["bar"]),
        _ranked(protocol, share),
    )


def _against(opponent: Mapping[str, Any] | None) -> str:
    if opponent is None:
        return "–"
    found = opponent["search_minus_this"]
    text = f"{found['points']:+.1f} ± {found['standard_error']:.1f} ({opponent['n']})".replace("-", "−")
    return _held(text, opponent["floor_holds"])


def _ranked(protocol: str, share: float) -> str:
    path = RESULTS / f"ranking_{protocol}_{100 * share:.0f}.json"
    if not path.exists():
        return "–"
    result = json.loads(path.read_text(encoding="utf-8"))
    shared, *others = (
        f"{found['mean']:.2f}" if (found := result["spearman"].get(key)) else "–"
        for key in ("settle_after", "policy_learned", "capacity")
    )
    known = "; ".join([_held(shared, result["passed"]), *others])
    return f"{known} ({result['from_scratch']['n']})".replace("-", "−")


def _held(text: str, holds: bool) -> str:
    return text if holds else f"**{text}**"


def replaced(text: str, made: str) -> str:
    """A text whose table with the same first column is now this one."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(f"| {HEAD[0]} |"))
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:first], made, *lines[last:], ""])


if __name__ == "__main__":
    print(table())
    if "--write" in sys.argv[1:]:
        README.write_text(replaced(README.read_text(encoding="utf-8"), table()), encoding="utf-8")
