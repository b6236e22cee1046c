"""What the entries of the ledger say: test accuracies, differences by seed, bars. Missing runs are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks._common import summarise
from benchmarks.quality import difference
from benchmarks.trained.ledger import Entry
from benchmarks.trained.peers import TOOLS
from benchmarks.trained.study import NONE, SELF

PRUNERS = ("taylor", "magnitude")
"""The two importances of Torch-Pruning, of which the better one by validation is compared."""
COLUMNS = {
    "ours, taught": "ours",
    "ours": "ours without a teacher",
    "magnitude": "Torch-Pruning, magnitude",
    "taylor": "Torch-Pruning, Taylor",
    "fastnas": "FastNAS",
    "uniform": "uniform widths",
    "random": "random widths",
    "scratch": "ours from scratch",
}
"""Contestants as the page calls them, in its order."""
UNITS = {"macs": "multiply-adds", "latency": "time"}
WALL = 1.25
"""The most that a search may take over its own finish alone."""
POINTS = {"macs": {0.5: 0.5, 0.3: 1.0, 0.15: 1.0}, "latency": {0.6: 1.5, 0.4: 3.0, 0.3: 3.0}}
"""By how many points the default must be ahead of a tool with plain fine-tuning."""
ABOUT = ("versions", "settings")


@dataclass(frozen=True)
class Scores:
    """A contestant at a limit: its test accuracy, validation accuracy and further numbers by seed."""

    test: Mapping[int, float]
    validation: Mapping[int, float]
    entries: Sequence[Entry]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Scores:
        """The mean over draws of random widths; of several learning rates the best by validation."""
        by_run: dict[tuple[int, Any], list[Entry]] = {}
        for entry in entries:
            if "test" in entry:
                by_run.setdefault((entry["seed"], entry.get("draw")), []).append(entry)
        best = [max(found, key=lambda entry: entry["validation"]) for _, found in sorted(by_run.items(), key=repr)]
        seeds = sorted({entry["seed"] for entry in best})
        means = {
            part: {seed: fmean(entry[part] for entry in best if entry["seed"] == seed) for seed in seeds}
            for part in ("test", "validation")
        }
        return cls(means["test"], means["validation"], best)

    def minus(self, other: Scores) -> dict[str, float]:
        """The difference in points over the seeds that both have."""
        seeds = sorted(self.test.keys() & other.test.keys())
        return difference([self.test[s] for s in seeds], [other.test[s] for s in seeds], paired=True)

    def row(self) -> dict[str, Any]:
        """Accuracy in percent, what the networks cost, and seconds."""
        found: dict[str, Any] = {"test": summarise(100 * score for score in self.test.values())}
        for name in ("share", "time", "lr", "over_finish_alone", "missed", "tool_seconds", "seconds"):
            values = [float(entry[name]) for entry in self.entries if entry.get(name) is not None]
            if values:
                found[name] = round(fmean(values), 4)
        return found


def table(entries: Iterable[Entry], part: str) -> list[dict[str, Any]]:
    """For each limit of a part: a row for each contestant, differences, and the bars."""
    found = [entry for entry in entries if entry.get("part") == part]
    return [_limit(part, limit, found) for limit in sorted({entry["limit"] for entry in found}, reverse=True)]


def _limit(part: str, limit: float, entries: Sequence[Entry]) -> dict[str, Any]:
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        if entry["limit"] == limit:
            groups.setdefault((entry["contestant"], entry["teacher"]), []).append(entry)
    scores = {key: made for key, found in groups.items() if (made := Scores.of(found)).test}
    return {
        "limit": limit,
        "rows": {_name(key): made.row() for key, made in scores.items()},
        "refused": sorted({_name(key) for key, found in groups.items() if any("refused" in e for e in found)}),
        "misses": {_name(key): _missed(found) for key, found in groups.items() if any("missed" in e for e in found)},
        "certified": [entry["certified"] for entry in groups.get(("ours", SELF), ())],
        "differences": list(_differences(part, limit, scores)),
        "wall": _wall(scores),
        "peers": {tool: _about(groups.get((tool, NONE), ())) for tool in TOOLS if (tool, NONE) in groups},
    }


def _name(key: tuple[str, str]) -> str:
    contestant, teacher = key
    return contestant if teacher == NONE else f"{contestant}, taught"


def _missed(entries: Sequence[Entry]) -> str:
    """Tries of the first learning rate, whose bisection the others share."""
    first = {entry["seed"]: entry for entry in reversed(entries)}
    tries = [one for entry in first.values() for one in entry["tries"]]
    return f"{sum(not one['within'] for one in tries)} of {len(tries)}"


def _about(entries: Sequence[Entry]) -> dict[str, Any]:
    return {name: entries[0][name] for name in ABOUT if name in entries[0]}


def _wall(scores: Mapping[tuple[str, str], Scores]) -> dict[str, Any]:
    """All that a search did over its finish alone, the teacher counted on both sides."""
    ours = scores.get(("ours", SELF))
    if ours is None:
        return {}
    ratio = fmean(entry["over_finish_alone"] for entry in ours.entries)
    return {"ratio": round(ratio, 3), "bar": WALL, "met": ratio <= WALL}


def _differences(part: str, limit: float, scores: Mapping[tuple[str, str], Scores]) -> Iterable[dict[str, Any]]:
    """The default against plain tools; then without a teacher on either side, then with one on both."""
    bar = POINTS[part].get(limit, 0.0)
    pruners = [key for key in ((name, NONE) for name in PRUNERS) if key in scores]
    better = max(pruners, key=lambda key: fmean(scores[key].validation.values()), default=None)
    plain = [key for key in (better, ("fastnas", NONE)) if key in scores]
    yield from (_compared(scores, ("ours", SELF), key, bar) for key in plain if key is not None)
    for teacher in (NONE, SELF):
        others = [key for key in scores if key[1] == teacher and key[0] != "ours"]
        yield from (_compared(scores, ("ours", teacher), key, 0.0) for key in others)


def _compared(
    scores: Mapping[tuple[str, str], Scores], ours: tuple[str, str], other: tuple[str, str], bar: float
) -> dict[str, Any]:
    name = {"ours": _name(ours), "other": _name(other), "bar": bar}
    if ours not in scores or not scores[ours].test.keys() & scores[other].test.keys():
        return {**name, "n": 0}
    found = scores[ours].minus(scores[other])
    known = {key: round(value, 3) for key, value in found.items() if math.isfinite(value)}
    return {**name, **known, "met": found["points"] >= bar}


def lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences for people."""
    said = []
    for limit in found:
        for row in limit["differences"]:
            if row["n"]:
                mark = "" if row["met"] else "  MISSED"
                error = f" ± {row['standard_error']:.2f}" if row["n"] > 1 else ""
                numbers = f"{row['points']:+.2f}{error} points (bar {row['bar']:+g}, n = {row['n']:g}){mark}"
                said.append(f"{100 * limit['limit']:g} %: {row['ours']} − {row['other']}: {numbers}")
    return said


def markdown(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """The tables of docs/results.md: accuracies of all contestants, then every difference with its bar."""
    limits = [
        (f"{100 * found['limit']:g} % of the {UNITS[part]}", found) for part, rows in tables.items() for found in rows
    ]
    said = [_cells("limit", *COLUMNS.values()), _cells("---", *["---:"] * len(COLUMNS))]
    said += [_cells(name, *(_accuracy(found["rows"].get(key)) for key in COLUMNS)) for name, found in limits]
    said += [
        "",
        _cells("limit", "difference", "points", "target", "seeds"),
        _cells("---", "---", "---:", "---:", "---:"),
    ]
    for name, found in limits:
        for row in found["differences"]:
            if row["n"]:
                wanted = f"{row['bar']:.1f}"
                said.append(
                    _cells(name, f"{_called(row['ours'])} − {_called(row['other'])}", _points(row), wanted, row["n"])
                )
    said += ["", _cells("limit", "whole search / its finish", "target"), _cells("---", "---:", "---:")]
    for name, found in limits:
        if found["wall"]:
            ratio, mark = f"{found['wall']['ratio']:.2f}", "" if found["wall"]["met"] else "**"
            said.append(_cells(name, f"{mark}{ratio}{mark}", WALL))
    return said


def _cells(*values: Any) -> str:
    return f"| {' | '.join(map(str, values))} |"


def _called(name: str) -> str:
    """A contestant in words; the default has its teacher."""
    plain = name.removesuffix(", taught")
    words = "ours" if plain == "ours" else COLUMNS[plain]
    return words if name == plain else f"{words} with a teacher"


def _accuracy(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    spread = f" ± {row['test']['std']:.1f}" if row["test"]["n"] > 1 else ""
    return f"{row['test']['mean']:.1f}{spread} ({row['test']['n']})"


def _points(row: Mapping[str, Any]) -> str:
    """A difference with its standard error and lower bound; bold if it misses its target."""
    error = f" ± {row['standard_error']:.1f}, above {row['lower_bound']:+.1f}" if row["n"] > 1 else ""
    mark = "" if row["met"] else "**"
    return f"{mark}{row['points']:+.1f}{error}{mark}".replace("-", "−")
