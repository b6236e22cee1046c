"""How long the runs of a plan would take here, from a few timed steps, before any of them is started."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from budgetnet.errors import UserError
from budgetnet.runs.config import Config
from budgetnet.runs.job import check_job, estimated_seconds, prepare
from budgetnet.runs.sweep.plan import Plan


@dataclass(frozen=True)
class Estimate:
    """Seconds of a run on this machine, or why it would be refused."""

    seconds: float | None
    refusal: str = ""


def estimates(plan: Plan, own: Collection[str] = ()) -> dict[str, Estimate]:
    """One for each run; runs that differ only in seed or λ take the same time."""
    known: dict[Config, Estimate] = {}
    found: dict[str, Estimate] = {}
    for name, config in plan.items():
        alike = replace(config, seed=0, penalty=None)
        if alike not in known:
            known[alike] = _estimate(alike, own)
        found[name] = known[alike]
    return found


def _estimate(config: Config, own: Collection[str]) -> Estimate:
    try:
        job = prepare(config, own)
        return Estimate(estimated_seconds(job, check_job(job)))
    except UserError as error:
        return Estimate(None, str(error))
