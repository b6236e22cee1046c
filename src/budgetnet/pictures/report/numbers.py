"""Values from files, which may be anything, as numbers and as texts for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from budgetnet.costs.units import COUNTS, show
from budgetnet.records.results import MetricDescription


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return None
    return float(value)


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def quantity(value: float, unit: str) -> str:
    """`40.90M macs`, `12.00 ms`, `20 steps`."""
    text = show(value, unit)
    return f"{text} {unit}".strip() if unit in COUNTS else text


def percent(value: float | None) -> str:
    """`91.3 %`, or a dash."""
    return "–" if value is None else f"{100 * value:.1f}\N{NO-BREAK SPACE}%"


def score_text(metric: MetricDescription, score: float | None) -> str:
    """A score as its metric shows it, or a dash."""
    return percent(score) if metric.format.endswith("%") else metric.show(score) or "–"


def duration(seconds: float | None) -> str:
    """`48 s`, `12 min`, `3 h 20 min`."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
