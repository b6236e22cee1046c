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
from budgetnet.training.device import Device, Later
from budgetnet.training.processes import Processes

BASELINES = {"leave-one-out": leave_one_out, "batch-mean": batch_mean}
TRAVEL = 0.8
"""How far noise alone carries a logit in the whole search, whatever its length: what an edge is worth must move it by
more. With a sixteenth of it Γ hardly learns, and its samples are no better than those of its start."""


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


@dataclass(frozen=True)
class Trial:
    """What a step tells Γ: the architectures, Γ as they were drawn from it, their penalties, and their losses."""

    gates: Tensor
    logits: Tensor
    penalty: Tensor
    losses: Later

    def state_dict(self) -> dict[str, Tensor]:
        """For a checkpoint."""
        return {**vars(self), "losses": self.losses.value()}


class Policy:
    """Γ, its optimizer and the multipliers. `update` is one step of section 3.3 of the paper.

    Where losses take a while to arrive, Γ learns from a step some steps later, by the gradient at the Γ that the step
    was sampled from; costs are known at once, and the multipliers never wait.
    """

    def __init__(self, distribution: EdgeDistribution, budgets: Sequence[Budget], settings: PolicySettings) -> None:
        self.distribution = distribution
        self.budgets = tuple(budgets)
        self.settings = settings
        self.optimizer = torch.optim.SGD(distribution.parameters(), settings.rate)
        self.multipliers = [Multiplier(settings.penalty) for _ in budgets]
        self.waiting: list[Trial] = []

    def update(
        self, draw: Draw, losses: Tensor | Later, batch: Any = None, device: Device | None = None
    ) -> dict[str, float]:
        """Moves Γ and the multipliers by one batch.

        Args:
            draw: The architectures of the groups, and their log-probabilities.
            losses: The mean loss of each group, here or on its way; of the groups of all processes.
            batch: The inputs, for costs that depend on them.
            device: Says after how many further updates Γ learns from this one, and which processes there are.

        Returns:
            Mean costs, violations and multipliers, for the records.
        """
        device = device or Device()
        processes = device.processes
        gates = processes.gather(draw.gates)
        costs = [self._costs(budget, draw.gates, gates, batch, processes) for budget in self.budgets]
        charge = torch.zeros(len(gates), dtype=torch.float64)
        if self.budgets:
            charge = penalty(self.budgets, costs, [m.value for m in self.multipliers])
        arriving = losses if isinstance(losses, Later) else Later(losses)
        self.waiting.append(Trial(gates, self.distribution.logits.detach().clone(), charge, arriving))
        self.catch_up(device.lag)
        return self._observe(costs)

    @staticmethod
    def _costs(budget: Budget, mine: Tensor, gates: Tensor, batch: Any, processes: Processes) -> Tensor:
        """The costs of the groups of all processes. What is random or measured comes from the first of them.

        So does the answer whether it is late, so that all processes must ask as often.
        """
        if budget.meter.cost.exact and not budget.meter.hurried:
            return processes.gather(budget.meter.evaluate(mine, batch))
        return budget.meter.evaluate(gates, batch)

    def catch_up(self, lag: int = 0) -> None:
        """Lets Γ learn from all trials but the last `lag` ones."""
        while len(self.waiting) > lag:
            self._learn(self.waiting.pop(0))

    def _learn(self, trial: Trial) -> None:
        """One step of the policy gradient (section 3.3, last equation)."""
        objective = trial.losses.value().double() + trial.penalty
        advantage = BASELINES[self.settings.baseline](objective)
        if self.settings.standardise:
            advantage = advantage / (advantage.std() + 1e-8)
        logits = trial.logits.requires_grad_()
        loss = score_function_loss(self.distribution.log_prob(trial.gates, logits), advantage)
        (self.distribution.logits.grad,) = torch.autograd.grad(loss, [logits])
        self.optimizer.step()

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
        return {
            "logits": self.distribution.logits.detach(),
            "multipliers": [asdict(m) for m in self.multipliers],
            "waiting": [trial.state_dict() for trial in self.waiting],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        with torch.no_grad():
            self.distribution.logits.copy_(state["logits"])
        self.multipliers = [Multiplier(**values) for values in state["multipliers"]]
        self.waiting = [Trial(**{**values, "losses": Later(values["losses"])}) for values in state["waiting"]]
