"""What the search phase learns besides θ: Γ by policy gradient, and a multiplier per budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, penalty
from budgetnet.budgets.multiplier import Multiplier
from budgetnet.network.distribution import INITIAL_LOGIT, Draw, EdgeDistribution
from budgetnet.network.graph import Architecture, Graph
from budgetnet.strategies.estimators import batch_mean, leave_one_out, score_function_loss
from budgetnet.strategies.recipes import Recipe

BASELINES = {"leave-one-out": leave_one_out, "batch-mean": batch_mean}
PROBES = 64
LEAST_CONNECTED = 0.125
"""Share of the samples that must connect by themselves for a start without an anchor; the others are drawn again."""
ANCHOR_LOGIT = 4.0
FREE_STARTS = [0.2 * 1.5**power for power in range(16)]
"""Pulls towards cheap edges, the strongest first, that are tried before the start is anchored instead."""
LEAST_LOGIT, RARE_LOGIT = -4.0, -1.1
"""No edge starts below the first, however dear it is: what is never sampled cannot be found. Nor below the second, a
probability of a quarter, if all edges can be equally likely instead."""


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


def initial_logits(recipe: Recipe, budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> Tensor:
    """Γ's start: the recipe's value, or one whose samples cost on average what the budgets allow.

    The most random of those, the distribution of largest entropy under a mean cost, has logits a − μ·(what the edge
    adds to the cost). Where that makes an edge rare, all edges are equally likely instead: what is dear is what most
    depends on, and needs its share of the training. Where the budgets are so tight that too few samples connect, the
    edges of `anchor`, which is within them, are kept likely.
    """
    flat = torch.ones(len(graph.edges))
    if recipe.initial_logit is not None or not budgets:
        return flat * (INITIAL_LOGIT if recipe.initial_logit is None else recipe.initial_logit)
    if _affordable(flat, budgets, graph):
        return flat * _largest(lambda a: _affordable(a * flat, budgets, graph), 1.0, INITIAL_LOGIT)
    weights = relative_costs(budgets, graph)

    def free(ease: float) -> Tensor:
        return (flat - weights / ease).clamp_min(LEAST_LOGIT)

    def anchored(ease: float) -> Tensor:
        return torch.where(anchor.gates(), torch.tensor(ANCHOR_LOGIT), free(ease))

    equal = equal_start(budgets, graph).logits.detach()
    connected, _ = _probe(equal, budgets, graph, 4 * PROBES)
    first = next((ease for ease in FREE_STARTS if _affordable(free(ease), budgets, graph)), None)
    if first is not None:
        random = free(_largest(lambda ease: _affordable(free(ease), budgets, graph), first, 100.0))
        if float(random.min()) >= RARE_LOGIT or connected <= LEAST_CONNECTED:
            return random
    if connected > LEAST_CONNECTED:
        return equal
    return anchored(_largest(lambda ease: _affordable(anchored(ease), budgets, graph), 1 / 300, 100.0))


def equal_start(budgets: Sequence[Budget], graph: Graph) -> EdgeDistribution:
    """All edges equally likely, at the largest logit at which samples that connect cost what the budgets allow."""
    low, high = LEAST_LOGIT, INITIAL_LOGIT
    for _ in range(14):
        middle = (low + high) / 2
        _, fits = _probe(torch.full((len(graph.edges),), middle), budgets, graph, 4 * PROBES)
        low, high = (middle, high) if fits else (low, middle)
    return EdgeDistribution(graph, low)


def marginal_costs(budgets: Sequence[Budget], graph: Graph) -> Tensor:
    """What each edge adds to the full network, as a share of the budgets; zero where the network needs the edge."""
    rows = ~torch.eye(len(graph.edges), dtype=torch.bool)
    shares = [(b.meter.full - b.meter.evaluate(rows)).clamp_min(0) / b.maximum for b in budgets]
    return torch.stack(shares).sum(0)


def relative_costs(budgets: Sequence[Budget], graph: Graph) -> Tensor:
    """What each edge adds, over the mean of all of them; a tenth more, so that no edge is nothing."""
    weights = marginal_costs(budgets, graph).float()
    return weights / weights.mean().clamp_min(1e-9) + 0.1


def _largest(good: Callable[[float], bool], low: float, high: float) -> float:
    """The largest value found good between two, by bisection of their ratio."""
    for _ in range(14):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _affordable(logits: Tensor, budgets: Sequence[Budget], graph: Graph) -> bool:
    """Whether enough samples connect, and those cost what the budgets allow."""
    share, fits = _probe(logits, budgets, graph, PROBES)
    return share > LEAST_CONNECTED and fits


def _probe(logits: Tensor, budgets: Sequence[Budget], graph: Graph, count: int) -> tuple[float, bool]:
    """The share of samples that connect, and whether those cost on average what the budgets allow."""
    trial = EdgeDistribution(graph)
    with torch.no_grad():
        trial.logits.copy_(logits)
    gates = trial.sample(count, torch.Generator().manual_seed(0)).gates
    connected = gates[graph.live(gates).any(1)]
    if not len(connected):
        return 0.0, True
    fits = all(float(budget.meter.evaluate(connected).mean()) <= budget.maximum for budget in budgets)
    return len(connected) / count, fits
