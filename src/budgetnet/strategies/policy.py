"""What the search phase learns besides the weights: Γ by policy gradient, and a multiplier per budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, penalty
from budgetnet.budgets.multiplier import Multiplier
from budgetnet.network.distribution import Draw, EdgeDistribution
from budgetnet.strategies.estimators import batch_mean, leave_one_out, score_function_loss

BASELINES = {"leave-one-out": leave_one_out, "batch-mean": batch_mean}
TRAVEL = 0.05
"""How far noise alone carries a logit in the whole search, whatever its length. It is small so that every edge keeps
its share of the training: an edge that loses it looks useless on shared weights, whatever it is worth."""


def default_rate(steps: int) -> float:
    """Γ's learning rate in a search of so many steps: `TRAVEL` over the root of their number."""
    return TRAVEL / math.sqrt(max(1, steps))


@dataclass(frozen=True)
class PolicySettings:
    """How Γ and the multipliers learn.

    Args:
        rate: Γ's learning rate, which does not follow that of the weights.
        penalty: λ at the beginning.
        adaptive: Whether λ follows the observed violation; otherwise it stays.
        baseline: What is subtracted from an objective: a name of `BASELINES`.
        standardise: Whether the advantages of a batch are divided by their spread, so that Γ's step does not depend on
            the scale of the loss.
    """

    rate: float
    penalty: float = 1.0
    adaptive: bool = True
    baseline: str = "leave-one-out"
    standardise: bool = True


class Policy:
    """Γ, its optimizer and the multipliers. `update` is one step of section 3.3 of the paper."""

    def __init__(self, distribution: EdgeDistribution, budgets: Sequence[Budget], settings: PolicySettings) -> None:
        self.distribution = distribution
        self.budgets = tuple(budgets)
        self.settings = settings
        self.optimizer = torch.optim.SGD(distribution.parameters(), settings.rate)
        self.multipliers = [Multiplier(settings.penalty) for _ in budgets]

    def update(self, draw: Draw, losses: Tensor, batch: Any = None) -> dict[str, float]:
        """Moves Γ and the multipliers by one batch.

        Args:
            draw: The architectures of the groups, and their log-probabilities.
            losses: The mean loss of each group.
            batch: The inputs, for costs that depend on them.

        Returns:
            Mean costs, violations and multipliers, for the records.
        """
        costs = [budget.meter.evaluate(draw.gates, batch) for budget in self.budgets]
        objective = losses.detach().double().cpu()
        if self.budgets:
            objective = objective + penalty(self.budgets, costs, [m.value for m in self.multipliers])
        advantage = BASELINES[self.settings.baseline](objective)
        if self.settings.standardise:
            advantage = advantage / (advantage.std() + 1e-8)
        self.optimizer.zero_grad()
        score_function_loss(draw.log_prob, advantage).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return self._observe(costs)

    def _observe(self, costs: Sequence[Tensor]) -> dict[str, float]:
        seen: dict[str, float] = {}
        for budget, multiplier, cost in zip(self.budgets, self.multipliers, costs, strict=True):
            if self.settings.adaptive:
                multiplier.update(float(budget.violation(cost).mean()))
            seen[f"cost/{budget.name}"] = float(cost.mean())
            seen[f"violation/{budget.name}"] = float((cost > budget.maximum).double().mean())
            seen[f"lambda/{budget.name}"] = multiplier.value
            seen[f"target/{budget.name}"] = budget.maximum
        return seen

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"logits": self.distribution.logits.detach(), "multipliers": [asdict(m) for m in self.multipliers]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        with torch.no_grad():
            self.distribution.logits.copy_(state["logits"])
        self.multipliers = [Multiplier(**values) for values in state["multipliers"]]
