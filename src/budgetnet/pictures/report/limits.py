"""The budgets of a run: what was asked for, what came out, and what the certificate says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from budgetnet.budgets.certificate import BudgetEntry
from budgetnet.costs import COSTS, Meter, units
from budgetnet.errors import UserError
from budgetnet.pictures.outline import Outline
from budgetnet.pictures.report.numbers import number
from budgetnet.records.folder import RunFiles


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
    bound: str = ""


def limits(run: RunFiles, outline: Outline | None) -> list[Limit]:
    """The budgets of a run, from its summary or, while there is none, as they were understood at its beginning."""
    proofs = {entry.cost: entry for entry in run.certificate.budgets} if run.certificate else {}
    entries: list[Mapping[str, Any]] = [vars(budget) for budget in run.summary.budgets] if run.summary else []
    if not entries:
        known = {limit.cost: vars(limit) for limit in (outline.limits if outline else ())}
        texts = [asked(str(text)) for text in _list(run.settings.get("budgets"))]
        entries = [known.get(entry["cost"], entry) for entry in texts]
    return [_limit(entry, proofs.get(str(entry.get("cost")))) for entry in entries]


def asked(text: str) -> dict[str, Any]:
    """A budget as it was written, as far as it can be understood by itself."""
    name, _, value = (part.strip() for part in re.sub("≤", "<=", text).partition("<="))
    kind = COSTS.get(name.partition("(")[0])
    entry: dict[str, Any] = {"cost": name, "unit": kind.unit if kind else ""}
    if kind is not None and not value.endswith("%"):
        with suppress(UserError):
            entry["maximum"] = units.parse(value, kind.unit)
    return entry


def meters(found: list[Limit], outline: Outline) -> dict[str, Meter]:
    """The budgets' costs that can be counted; `macs` if there is no other."""
    return {limit.cost: outline.meters[limit.cost] for limit in found if limit.cost in outline.meters} or {
        name: meter for name, meter in outline.meters.items() if name == "macs"
    }


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
        "" if proof is None else proof.bound,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
