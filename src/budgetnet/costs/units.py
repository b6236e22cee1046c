"""Quantities as people write and read them: `40.9M`, `500kB`, `12ms`. Inside, every cost is in its base unit."""

from __future__ import annotations

import math
import re

from budgetnet.errors import UserError

COUNTS = ("macs", "params", "steps", "")
"""Units that are plain numbers: the unit's name may be left out."""

LARGE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def scales(unit: str) -> dict[str, float]:
    """Every suffix that a quantity of this unit takes, with its factor."""
    if unit in COUNTS:
        return {**LARGE, **({prefix + unit: factor for prefix, factor in LARGE.items()})}
    prefixes = {**LARGE, **(BINARY if unit == "B" else SMALL)}
    return {prefix + unit: factor for prefix, factor in prefixes.items()}


def parse(text: str, unit: str) -> float:
    """A written quantity in the base unit; an unknown suffix is refused with those that there are."""
    match = _NUMBER.fullmatch(text)
    suffixes = scales(unit)
    if match is None or match[2] not in suffixes:
        listed = ", ".join(suffix or "none" for suffix in suffixes)
        kind = unit or "plain numbers"
        raise UserError(f"{text.strip()!r} is not a quantity in {kind}; write a number and one of: {listed}")
    return float(match[1]) * suffixes[match[2]]


def show(value: float, unit: str) -> str:
    """A quantity for people, four digits: `40.90M`, `1.093 MB`, `12.00 ms`, `20`."""
    if not math.isfinite(value):
        return f"{value} {unit}".strip()
    separator = "" if unit in COUNTS else " "
    suffix = "" if unit in COUNTS else unit
    steps = [("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)]
    if unit not in COUNTS and unit != "B":
        steps += [("m", 1e-3), ("µ", 1e-6), ("n", 1e-9)]
    prefix, factor = next((step for step in steps if abs(value) >= step[1]), steps[-1] if value else ("", 1.0))
    digits = f"{value / factor:.4g}" if factor == 1.0 and value == round(value) else f"{value / factor:#.4g}"
    return f"{digits.rstrip('.')}{separator}{prefix}{suffix}".strip()
