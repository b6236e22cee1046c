"""The budgets of a run: what was asked for, what came out, and what the certificate says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from budgetnet.budgets.budget import parse
from budgetnet.budgets.certificate import BudgetEntry
from budgetnet.costs import COSTS, Meter, bind, units
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.report.numbers import number
from budgetnet.records.folder import RunFiles

COUNTED = ("macs", "params", "size", "steps")
"""Costs that are counted at once. Others are measured, or code that no file may name: not bound here."""


@dataclass(frozen=True)
class Limit:
    """One budget. What is not known (yet) is None."""

    cost: str
    unit: str
    maximum: float | None
    value: float | None
    met: bool | None
    certified: bool | None
    how: Mapping[str, Any]


def limits(run: RunFiles, net: SuperNetwork | None) -> list[Limit]:
    """The budgets of a run, from its summary or, while there is none, from its configuration."""
    proofs = {entry.cost: entry for entry in run.certificate.budgets} if run.certificate else {}
    entries: list[Mapping[str, Any]] = [vars(budget) for budget in run.summary.budgets] if run.summary else []
    if not entries:
        entries = [asked(str(text), net) for text in _list(run.settings.get("budgets"))]
    return [_limit(entry, proofs.get(str(entry.get("cost")))) for entry in entries]


def asked(text: str, net: SuperNetwork | None) -> dict[str, Any]:
    """A budget as it was written, as far as it can be understood without running anything."""
    name, _, value = (part.strip() for part in re.sub("≤", "<=", text).partition("<="))
    kind = COSTS.get(name.partition("(")[0])
    entry: dict[str, Any] = {"cost": name, "unit": kind.unit if kind else ""}
    try:
        if net is not None and counted(name):
            entry["maximum"] = parse(text, net).maximum
        elif kind is not None and not value.endswith("%"):
            entry["maximum"] = units.parse(value, kind.unit)
    except UserError:
        entry["maximum"] = None
    return entry


def counted(name: str) -> bool:
    """Whether a cost can be counted from the graph."""
    return name.partition("(")[0] in COUNTED


def meters(found: list[Limit], net: SuperNetwork, known: Mapping[str, Meter] | None = None) -> dict[str, Meter]:
    """The budgets' costs that can be counted, ready to use; `macs` if there is no other. `known` ones are not bound."""
    names = [limit.cost for limit in found if counted(limit.cost)] or ["macs"]
    ready: dict[str, Meter] = {}
    for name in names:
        try:
            ready[name] = (known or {}).get(name) or bind(name, net)
        except UserError:  # written by hand, or by another version
            continue
    return ready


def _limit(entry: Mapping[str, Any], proof: BudgetEntry | None) -> Limit:
    met = entry.get("met")
    return Limit(
        str(entry.get("cost", "")),
        str(entry.get("unit", "")),
        number(entry.get("maximum")),
        number(entry.get("value")) if proof is None else proof.measured,
        met if isinstance(met, bool) else None,
        None if proof is None else proof.holds,
        {} if proof is None else proof.how,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
