"""The table of search quality in docs/results.md, from the result files of `quality`: wins and losses alike.

python -m benchmarks._quality_table             # prints it
python -m benchmarks._quality_table --write     # puts it in place of the one with the same head
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
    "final epochs",
    "search, test accuracy",
    "− random ones, same epochs (≥ 0.5, bound > 0)",
    "− random ones, same seconds (≥ 0)",
    "− hand-made, interpolated",
    "budget used (≥ 95 %)",
    "wall time / training (≤ 1.5 at 16 epochs, ≤ 1.2 at 64)",
)
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


PAGES: Mapping[Path, Mapping[Cells, Callable[[str, Found], Cells]]] = {
    ROOT / "docs" / "results.md": {SUMMARY: summary},
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
    for page, tables in PAGES.items():
        for head, row in tables.items():
            made = table(head, row)
            print(made, end="\n\n")
            if "--write" in sys.argv[1:]:
                page.write_text(replaced(page.read_text(encoding="utf-8"), made), encoding="utf-8")
