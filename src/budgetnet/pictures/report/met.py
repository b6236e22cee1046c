"""Is the budget met, and how is that known: a card for each budget, and what else the network costs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from budgetnet.costs.units import COUNTS, show
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.numbers import quantity
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import Summary

GOOD, BAD, OPEN = "good", "bad", "open"
HIDDEN = ("reserved",)
"""Of how a budget was measured, what only the certificate tells."""


@dataclass(frozen=True)
class Card:
    """A budget: its cost, the network's value, what was allowed, the share used, the verdict, how it is known."""

    cost: str
    value: str
    allowed: str
    used: str
    filled: float | None
    verdict: str
    mood: str
    how: str
    before: str = ""


@dataclass(frozen=True)
class Met:
    """The section."""

    cards: list[Card]
    facts: list[tuple[str, str]]
    machine: str


def met(run: RunFiles, limits: list[Limit]) -> Met:
    """What is known about the budgets of a run."""
    machine = run.certificate.machine if run.certificate else {}
    told = ", ".join(
        part
        for part in (str(machine.get("processor", "")), f"{machine['cores']} cores" if "cores" in machine else "")
        if part
    )
    return Met([_card(limit, run.summary) for limit in limits], list(_facts(run, limits)), told)


def _card(limit: Limit, summary: Summary | None) -> Card:
    value = "–" if limit.value is None else show(limit.value, limit.unit)
    allowed = "–" if limit.maximum is None else f"at most {quantity(limit.maximum, limit.unit)}"
    allowed = allowed.removesuffix(f" {limit.unit}") if limit.unit in COUNTS else allowed
    share = limit.value / limit.maximum if limit.value is not None and limit.maximum else None
    known = share is not None and math.isfinite(share)
    filled = min(max(share, 0.0), 1.0) if known and share is not None else None
    verdict = limit.certified if limit.certified is not None else limit.met
    mood = OPEN if verdict is None else GOOD if verdict else BAD
    word = {OPEN: "not known yet", GOOD: "met", BAD: "not met"}[mood]
    used = f"{100 * share:.1f} % used" if known and share is not None else ""
    full = summary.before.costs.get(limit.cost) if summary and summary.before else None
    before = "" if full is None else f"The full network: {show(full, limit.unit)}."
    return Card(limit.cost, value, allowed, used, filled, word, mood, _how(limit), before)


def _how(limit: Limit) -> str:
    """How a value is known, as one sentence: the method first."""
    if not limit.how:
        return "" if limit.certified is None else "counted"
    method = str(limit.how.get("method", "measured"))
    rest = [f"{key} {_text(value)}" for key, value in limit.how.items() if key not in ("method", *HIDDEN)]
    return "; ".join([*([limit.bound] if limit.bound else []), method, *rest])


def _facts(run: RunFiles, limits: list[Limit]) -> Iterator[tuple[str, str]]:
    summary = run.summary
    if summary is None:
        return
    told = [limit.cost for limit in limits]
    was = summary.before
    for name, unit, value in (("multiply-adds", "macs", summary.macs), ("parameters", "params", summary.params)):
        if unit not in told:
            before = f" (before: {show(getattr(was, unit), unit)})" if was else ""
            yield name, f"{show(value, unit)}{before}"
    yield from summary.files()
    if was is not None:
        yield "weights file", f"{show(was.file_bytes_after, 'B')} (before: {show(was.file_bytes, 'B')})"


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return " to ".join(_text(item) for item in value) if len(value) == 2 else ", ".join(map(_text, value))
    return json.dumps(value, ensure_ascii=False)
