"""Budgets: a cost and its maximum, as people write them, and the penalty that enforces them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from budgetnet.costs import CostFactory, Evidence, Meter, bind, units
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

BudgetLike = str | tuple[str | CostFactory, float]
"""`"macs<=40.9M"`, or a cost (its text, or a function of the super network) and a maximum in its base unit."""

FEW_DRAWS = 16
"""Draws of a random cost behind a first judgement; what is chosen by it is proven by hundreds of draws later."""
TIGHTER = 0.99
"""A lowered budget is this share of what the evidence asks for, so that the next evidence does not fail by a hair."""

_GRAMMAR = re.compile(r"\s*(.+?)\s*(?:<=|≤)\s*(.+?)\s*")


@dataclass(frozen=True, eq=False)
class Budget:
    """A limit on one cost.

    Args:
        text: The budget as it was written.
        meter: The cost, bound to a super network.
        maximum: In the cost's base unit.
    """

    text: str
    meter: Meter
    maximum: float

    @property
    def name(self) -> str:
        """The cost's text, by which records and summaries call it."""
        return self.meter.name

    def violation(self, costs: Tensor) -> Tensor:
        """How far costs are over the budget, without a unit.

        Args:
            costs: In the cost's base unit.

        Returns:
            C / C_max − 1 of each.
        """
        return costs / self.maximum - 1

    def admits(self, costs: Tensor) -> Tensor:
        """Which costs are within the budget.

        Args:
            costs: In the cost's base unit.

        Returns:
            True or false for each.
        """
        return costs <= self.maximum

    def holds(self, evidence: Evidence) -> bool:
        """Whether a measured cost is within the budget.

        Args:
            evidence: What was counted or measured.

        Returns:
            Whether its upper bound is within the budget.
        """
        return evidence.within(self.maximum)

    def show(self, value: float | None = None) -> str:
        """A value of this cost for people.

        Args:
            value: In the cost's base unit; the maximum if None.

        Returns:
            The value with its unit.
        """
        return units.show(self.maximum if value is None else value, self.meter.unit)


def parse(
    budget: BudgetLike,
    net: SuperNetwork,
    costs: Mapping[str, str] | None = None,
    example: Any = None,
    *,
    own: Collection[str] = (),
) -> Budget:
    """`NAME[(arguments)]<=VALUE[unit | %]`; a share is of the full network.

    Args:
        budget: The text, or a cost and a maximum in its base unit.
        net: The super network.
        costs: `package.module:name` by short name.
        example: A batch for costs that depend on the input.
        own: The names of code that the user gave to this process.

    Returns:
        The budget.
    """
    if isinstance(budget, tuple):
        return _from_pair(budget, net, example, own)
    name, value = _parts(budget)
    meter = _meter(name, net, costs, own)
    meter.example = example
    maximum = _share(value) * meter.full if value.endswith("%") else units.parse(value, meter.unit)
    return _checked(Budget(budget.strip(), meter, maximum))


def depends_on_batch(
    budget: BudgetLike, net: SuperNetwork, costs: Mapping[str, str] | None = None, *, own: Collection[str] = ()
) -> bool:
    """Whether the cost of a budget needs a batch of data to be evaluated.

    Args:
        budget: The budget, as text or pair.
        net: The super network.
        costs: `package.module:name` by short name.
        own: The names of code that the user gave to this process.

    Returns:
        True if it does.
    """
    if isinstance(budget, tuple):
        return bind(budget[0], net, own=own).takes_batch
    return _meter(_parts(budget)[0], net, costs, own).takes_batch


def _parts(budget: str) -> tuple[str, str]:
    match = _GRAMMAR.fullmatch(budget) if isinstance(budget, str) else None
    if match is None:
        raise UserError(f'{budget!r} is not a budget; write a cost, <= and a maximum, such as "macs<=40.9M"')
    return match[1], match[2]


def _meter(name: str, net: SuperNetwork, costs: Mapping[str, str] | None, own: Collection[str]) -> Meter:
    short = name.partition("(")[0].strip()
    return bind((costs or {}).get(short, short) + name[len(short) :], net, own=own)


def as_budgets(budgets: str | Sequence[BudgetLike] | Mapping[str, Any]) -> list[BudgetLike]:
    """Budgets in any form as a list: a number in a dict is in the cost's base unit.

    Args:
        budgets: One text, several budgets, or a dict of costs to maxima.

    Returns:
        A list that `parse_all` takes.
    """
    if isinstance(budgets, str):
        return [budgets]
    if isinstance(budgets, Mapping):
        return [f"{name}<={value}" if isinstance(value, str) else (name, value) for name, value in budgets.items()]
    return list(budgets)


def parse_all(
    budgets: Iterable[BudgetLike],
    net: SuperNetwork,
    costs: Mapping[str, str] | None = None,
    example: Any = None,
    *,
    own: Collection[str] = (),
) -> list[Budget]:
    """Several budgets; two for one cost are refused, since the looser one says nothing.

    Args:
        budgets: The budgets, as texts or pairs.
        net: The super network.
        costs: `package.module:name` by short name.
        example: A batch for costs that depend on the input.
        own: The names of code that the user gave to this process.

    Returns:
        The budgets in their order.
    """
    parsed: dict[str, Budget] = {}
    for budget in (parse(text, net, costs, example, own=own) for text in budgets):
        if budget.name in parsed:
            raise UserError(
                f"{parsed[budget.name].text!r} and {budget.text!r} limit the same cost; keep the smaller one"
            )
        parsed[budget.name] = budget
    return list(parsed.values())


def _from_pair(
    budget: tuple[str | CostFactory, float], net: SuperNetwork, example: Any, own: Collection[str]
) -> Budget:
    meter = bind(budget[0], net, own=own)
    meter.example = example
    try:
        maximum = float(budget[1])
    except (TypeError, ValueError):
        raise UserError(f"the maximum of {meter.name} is {budget[1]!r}; give a number in its base unit") from None
    return _checked(Budget(f"{meter.name}<={units.show(maximum, meter.unit)}", meter, maximum))


def _checked(budget: Budget) -> Budget:
    if not budget.maximum > 0 or not math.isfinite(budget.maximum):
        raise UserError(f"the budget {budget.text!r} is {budget.show()}; a maximum must be finite and above zero")
    return budget


def _share(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UserError(
            f"{text!r} is not a share of the full network; write a number before the %, such as 60%"
        ) from None


def set_deadline(budgets: Sequence[Budget], until: float) -> None:
    """Lets costs of a user's own be asked until then (`time.monotonic`), see `Meter.until`.

    Args:
        budgets: The budgets.
        until: The time at which no further question is asked.
    """
    for budget in budgets:
        budget.meter.until = until


def penalty(budgets: Sequence[Budget], costs: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ_b λ_b · max(0, C_b / C_b,max − 1) for each architecture (equation 4, costs divided by their budget).

    Args:
        budgets: The budgets.
        costs: For each budget the cost of every architecture.
        weights: λ of each budget.

    Returns:
        A penalty for each architecture.
    """
    parts = zip(budgets, costs, weights, strict=True)
    return torch.stack([weight * budget.violation(cost).clamp_min(0) for budget, cost, weight in parts]).sum(0)


def within_all(budgets: Sequence[Budget], gates: Tensor, batch: Any = None) -> Tensor:
    """Which rows of gates connect and are within every budget, as far as `evaluate` knows.

    Args:
        budgets: The budgets, at least one.
        gates: Architectures × edges.
        batch: A batch for costs that depend on the input.

    Returns:
        A truth value for each row.
    """
    if not budgets:
        raise UserError('no budget was given; write at least one, such as "macs<=60%"')
    graph = budgets[0].meter.graph
    inside = graph.live(gates).any(1)
    for budget in budgets:
        inside &= budget.admits(_likely_cost(budget.meter, gates, batch))
    return inside


def _likely_cost(meter: Meter, gates: Tensor, batch: Any) -> Tensor:
    """The cost as `evaluate` knows it; of a random one the mean of a few draws and twice its standard error."""
    if not meter.stochastic:
        return meter.evaluate(gates, batch)
    draws = torch.stack([meter.evaluate(gates, batch) for _ in range(FEW_DRAWS)])
    return draws.mean(0) + 2 * draws.std(0) / math.sqrt(FEW_DRAWS)


def proven_within(budgets: Sequence[Budget], architecture: Architecture, batches: Sequence[Any] = ()) -> bool:
    """Whether an architecture holds every budget by evidence, with room for worse evidence the next time.

    Args:
        budgets: The budgets.
        architecture: The architecture.
        batches: Batches that stand for the data where a cost depends on it.

    Returns:
        Whether the cautious bound of every evidence is within its budget.
    """
    return all(budget.meter.evidence(architecture, batches).cautious <= budget.maximum for budget in budgets)


def tightened(budgets: Sequence[Budget], architecture: Architecture, batches: Sequence[Any] = ()) -> list[Budget]:
    """The budgets lowered by as much as this architecture's evidence is worse than what `evaluate` thinks of it.

    Args:
        budgets: The budgets.
        architecture: An architecture that should have held them.
        batches: Batches that stand for the data where a cost depends on it.

    Returns:
        The budgets; one that the architecture holds is as it was.
    """
    return [_tightened(budget, architecture, batches) for budget in budgets]


def _tightened(budget: Budget, architecture: Architecture, batches: Sequence[Any]) -> Budget:
    found = budget.meter.evidence(architecture, batches).cautious
    if found <= budget.maximum:
        return budget
    thought = float(_likely_cost(budget.meter, architecture.gates()[None], None)[0])
    return replace(budget, maximum=TIGHTER * budget.maximum * thought / found)
