"""What the search phase learns besides θ: Γ by policy gradient, and a multiplier per budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from budgetnet.budget import Budget, Multiplier, penalty
from budgetnet.estimators import batch_mean, leave_one_out, score_function_loss
from budgetnet.recipes import Recipe
from budgetnet.sampling import INITIAL_LOGIT, Draw, EdgeDistribution

BASELINES = {"leave-one-out": leave_one_out, "batch-mean": batch_mean}
PROBES = 64


class Policy:
    """Γ, its optimiser and the multipliers. `update` is one step of section 3.3 of the paper."""

    def __init__(self, distribution: EdgeDistribution, budgets: Sequence[Budget], recipe: Recipe, steps: int) -> None:
        self.distribution = distribution
        self.budgets = tuple(budgets)
        self.recipe = recipe
        self.rate = recipe.policy_rate(steps)
        self.optimizer = torch.optim.SGD(distribution.parameters(), self.rate)
        self.multipliers = [Multiplier(recipe.penalty) for _ in budgets]

    def maxima(self, progress: float) -> list[float]:
        """Each budget's maximum at this progress of the search: annealed from the full cost, if the recipe says so."""
        rest = max(0.0, 1 - progress / self.recipe.anneal) if self.recipe.anneal else 0.0
        return [b.maximum + rest * max(0.0, b.meter.full - b.maximum) for b in self.budgets]

    def update(self, draw: Draw, losses: Tensor, progress: float, batch: Any = None) -> dict[str, float]:
        """Moves Γ and the multipliers by one batch: a loss per group. Returns what is worth recording."""
        costs = [budget.meter.evaluate(draw.gates, batch) for budget in self.budgets]
        maxima = self.maxima(progress)
        objective = losses.detach().double().cpu()
        if self.budgets:
            objective = objective + penalty(self.budgets, costs, [m.value for m in self.multipliers], maxima)
        advantage = BASELINES[self.recipe.baseline](objective)
        if self.recipe.standardise:
            advantage = advantage / (advantage.std() + 1e-8)
        self.optimizer.zero_grad()
        score_function_loss(draw.log_prob, advantage).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return self._observe(costs, maxima)

    def _observe(self, costs: Sequence[Tensor], maxima: Sequence[float]) -> dict[str, float]:
        seen: dict[str, float] = {}
        for budget, multiplier, cost, maximum in zip(self.budgets, self.multipliers, costs, maxima, strict=True):
            if self.recipe.adaptive:
                multiplier.update(float(budget.violation(cost, maximum).mean()))
            seen[f"cost/{budget.name}"] = float(cost.mean())
            seen[f"violation/{budget.name}"] = float((cost > maximum).double().mean())
            seen[f"lambda/{budget.name}"] = multiplier.value
            seen[f"target/{budget.name}"] = maximum
        return seen

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"logits": self.distribution.logits.detach(), "multipliers": [asdict(m) for m in self.multipliers]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        with torch.no_grad():
            self.distribution.logits.copy_(state["logits"])
        self.multipliers = [Multiplier(**values) for values in state["multipliers"]]


def initial_logit(recipe: Recipe, budgets: Sequence[Budget], distribution: EdgeDistribution) -> float:
    """Γ's start: the recipe's, or the largest one whose samples cost on average what the budgets allow.

    Starting there costs less than starting at the full network, and gives every edge the same share of the training.
    """
    if recipe.initial_logit is not None:
        return recipe.initial_logit
    low, high = -2.0, INITIAL_LOGIT
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if _affordable(middle, budgets, distribution) else (low, middle)
    return low


def _affordable(logit: float, budgets: Sequence[Budget], distribution: EdgeDistribution) -> bool:
    trial = EdgeDistribution(distribution.graph, logit)
    gates = trial.sample(PROBES, torch.Generator().manual_seed(0)).gates
    connected = gates[distribution.graph.live(gates).any(1)]
    return len(connected) > PROBES // 2 and all(
        float(budget.meter.evaluate(connected).mean()) <= budget.maximum for budget in budgets
    )
