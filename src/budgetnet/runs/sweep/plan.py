"""What a sweep runs: settings, from a command line or a file, as an ordered mapping of run names to configurations."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.runs.arguments import AND
from budgetnet.runs.config import FRESH, Config, from_mapping
from budgetnet.spaces import SPACES

Plan = dict[str, Config]
"""Run names, which are folders in the sweep's folder, and what each run is to do."""

AXES = {
    "budgets": "budgets",
    "recipes": "recipe",
    "seeds": "seed",
    "penalties": "penalty",
    "architectures": "architecture",
}
"""Settings that are lists, and the field of a run's configuration that each one fills."""
SHARED = tuple(field.name for field in dataclasses.fields(Config) if field.name not in AXES.values())
SETTINGS = (*AXES, *SHARED)
LONGEST = 80
"""Characters of a part of a run's name, which is the name of a folder."""
MOST_PENALTIES = 1000
MOST_RUNS = 10_000
"""A plan of more runs is a slip of the keyboard: nobody waits for it."""


def make_plan(settings: Mapping[str, Any], where: str) -> Plan:
    """Every run of a sweep. With `runs`, a list of tables, each table is a grid that starts from the other settings."""
    base = {name: value for name, value in settings.items() if name != "runs"}
    tables = settings.get("runs", [{}])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        raise UserError(f"{where}: runs cannot be {printable(tables, 60)}; write each one as a table under [[runs]]")
    plan: Plan = {}
    known: set[Config] = set()
    for table in tables:
        for name, config in _grid({**_known(base, where), **_known(table, where)}, where):
            if len(plan) >= MOST_RUNS:
                raise UserError(f"{where}: the sweep has more than {MOST_RUNS} runs; give fewer values")
            if config not in known:
                plan[_free(name, plan)] = config
                known.add(config)
    return plan


def _known(settings: Mapping[str, Any], where: str) -> dict[str, Any]:
    renamed = {key.replace("-", "_"): value for key, value in settings.items()}
    for key in renamed:
        if key not in (*SETTINGS, "name"):
            raise UserError(f"{where}: {key!r} is not a setting of a sweep; use {', '.join((*SETTINGS, 'name'))}, runs")
    return renamed


def _grid(settings: dict[str, Any], where: str) -> Iterator[tuple[str, Config]]:
    """Budgets × recipes × λ × seeds, then fixed architectures × recipes × seeds."""
    prefix = [_slug(settings.pop("name"))] if "name" in settings else []
    axes = {axis: _items(settings.pop(axis, None)) for axis in AXES}
    if not axes["budgets"] and not axes["architectures"]:
        raise UserError(f'{where}: no budgets were given; write at least one, such as --budgets "macs<=60%"')
    recipes, seeds = axes["recipes"] or [FRESH], axes["seeds"] or [Config.seed]

    def config(**values: Any) -> Config:
        return from_mapping({**settings, **{k: v for k, v in values.items() if v is not None}}, where)

    penalties: Sequence[float | None] = _penalties(axes["penalties"], where) or [None]
    for entry, recipe, penalty, seed in itertools.product(axes["budgets"], recipes, penalties, seeds):
        made = config(budgets=_together(entry, where), recipe=recipe, penalty=penalty, seed=seed)
        weight = [] if penalty is None else [f"lambda-{penalty:g}"]
        yield "_".join([*prefix, _slug(entry), _slug(recipe), *weight, f"seed-{seed}"]), made
    measured = _measured(axes["budgets"], where)
    for entry, recipe, seed in itertools.product(axes["architectures"], recipes, seeds):
        space, architecture = _fixed(entry, settings.get("space", Config.space), where)
        made = config(space=space, architecture=architecture, budgets=measured, recipe=recipe, seed=seed)
        yield "_".join([*prefix, _slug(_short(entry)), _slug(recipe), f"seed-{seed}"]), made


def _items(value: Any) -> list[Any]:
    """A list; a single value is a list of one."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _together(entry: Any, where: str) -> tuple[str, ...]:
    if not isinstance(entry, str):
        raise UserError(f'{where}: budgets cannot hold {entry!r}; write texts, such as "macs<=60%{AND}params<=1M"')
    return tuple(part.strip() for part in entry.split(AND))


def _penalties(entries: Sequence[Any], where: str) -> list[float]:
    found: list[float] = []
    for entry in entries:
        found += _range(entry, where) if isinstance(entry, str) and ":" in entry else [_number(entry, where)]
    return found


def _range(text: str, where: str) -> list[float]:
    """`0.1:10:5` is five values from 0.1 to 10, equally spaced in their logarithm, to four digits."""
    parts = text.split(":")
    if len(parts) != 3 or not re.fullmatch(r"\s*[0-9]{1,4}\s*", parts[2]) or not 2 <= int(parts[2]) <= MOST_PENALTIES:
        raise UserError(
            f"{where}: the penalties {printable(text, 60)!r} are no range of 2 to {MOST_PENALTIES} values; write "
            "first:last:count, such as 0.1:10:5"
        )
    first, last, count = _number(parts[0], where), _number(parts[1], where), int(parts[2])
    if not 0 < first < last < math.inf or not math.isfinite(last / first):
        raise UserError(f"{where}: the penalties {printable(text, 40)!r} must rise from above zero, as 0.1:10:5 do")
    return [float(f"{first * (last / first) ** (i / (count - 1)):.4g}") for i in range(count)]


def _number(value: Any, where: str) -> float:
    try:
        return float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{where}: the penalty {printable(value, 40)!r} is not a number; write it as 0.1, or a range 0.1:10:5"
        ) from None


def _measured(entries: Sequence[Any], where: str) -> tuple[str, ...]:
    """What fixed architectures are measured on: every cost that the sweep limits, with a budget that limits nothing."""
    texts = [text for entry in entries for text in _together(entry, where)] or ["macs<=100%"]
    return tuple(dict.fromkeys(f"{re.split('<=|≤', text)[0].strip()}<=100%" for text in texts))


def _fixed(entry: Any, base: str, where: str) -> tuple[str, str]:
    """Space and architecture: `resnet-20` or `found.json` in the sweep's space, `SPACE[@ARCHITECTURE]` in another."""
    if not isinstance(entry, str) or not entry:
        raise UserError(f"{where}: architectures cannot hold {entry!r}; write a name, a space, SPACE@NAME or a file")
    space, at, architecture = entry.rpartition("@")
    if at:
        return space, architecture
    if entry.partition(":")[0] in SPACES or ":" in entry:
        return entry, "full"
    return base, entry


def _short(entry: str) -> str:
    """The architecture as a name: of a file without its folder."""
    return Path(entry).stem if entry.endswith(".json") and "@" not in entry else entry


def _slug(text: Any) -> str:
    """For a folder's name."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", str(text).replace("%", "pct").replace(AND, "-and-"))
    return plain.strip("-.")[:LONGEST] or "run"


def _free(name: str, taken: Mapping[str, Any]) -> str:
    return next(n for n in itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2))) if n not in taken)
