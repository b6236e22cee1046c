"""Γ's start, as a value that says how it was found and what its samples are expected to cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget
from budgetnet.budgets.feasibility import expected
from budgetnet.network.distribution import INITIAL_LOGIT, EdgeDistribution
from budgetnet.network.graph import Architecture, Graph

PROBES = 64
"""Samples by which the mean cost under a distribution is estimated while a start is looked for."""
LEAST_CONNECTED = 0.125
"""The share of the samples that must connect by themselves for a start without an anchor; the others are resampled."""
ANCHOR_LOGIT = 4.0
"""p ≈ 0.98 for the edges of the anchor, so that most samples contain a path that meets the budgets."""
FREE_STARTS = [0.2 * 1.5**power for power in range(16)]
"""Pulls towards cheap edges, the strongest first, that are tried before the start is anchored instead."""
LEAST_LOGIT = -4.0
"""No edge starts below p ≈ 0.02, however expensive it is: an edge that is never sampled cannot be found."""
RARE_LOGIT = -1.1
"""Nor below p = 1/4, if all edges can be equally likely instead."""
BISECTIONS = 14
"""Halvings of a range, after which its ends differ by less than a thousandth."""

GIVEN, LOOSE, BY_COST, EQUAL, ANCHORED, IMPORTANT = "given", "loose", "by cost", "equal", "anchored", "importance"
"""The regimes: a logit that the strategy fixes; the largest equal logit where the budgets allow p ≥ 0.73; the maximum
entropy under a mean cost, with likelier cheap edges; equal logits, where the former would make some edges rare;
likely edges of the anchor, where too few samples would connect otherwise; and, from trained weights, edges the likelier
the more important they are for their cost."""


@dataclass(frozen=True, eq=False)
class Start:
    """Where Γ starts.

    Args:
        logits: Of every edge.
        regime: How they were found.
        expected: The mean cost of a sample under each budget, by the name of its cost.
    """

    logits: Tensor
    regime: str
    expected: Mapping[str, float]

    def distribution(self, graph: Graph) -> EdgeDistribution:
        """Γ at its start."""
        return _distribution(graph, self.logits)

    def about(self) -> dict[str, Any]:
        """For the records."""
        return {"start": self.regime, **{f"start_cost/{name}": value for name, value in self.expected.items()}}


def given_start(logit: float, budgets: Sequence[Budget], graph: Graph) -> Start:
    """All edges at one logit, whatever the budgets say (the paper's start)."""
    return _start(torch.full((len(graph.edges),), logit), GIVEN, budgets, graph)


def budgeted_start(budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> Start:
    """A start whose samples cost on average what the budgets allow.

    The distribution of largest entropy under a mean cost has logits a − μ·(what the edge adds to the cost). Where that
    makes an edge rare, all edges are equally likely instead: most depends on the expensive edges, which need their
    share of the training. Where the budgets are so tight that too few samples connect, the edges of `anchor` are kept
    likely.

    Args:
        budgets: The budgets; without any, Γ starts where the paper starts it.
        graph: The graph.
        anchor: An architecture within the budgets.

    Returns:
        The start.
    """
    if not budgets:
        return given_start(INITIAL_LOGIT, budgets, graph)
    return _start(*_budgeted(budgets, graph, anchor), budgets, graph)


def importance_start(budgets: Sequence[Budget], graph: Graph, importance: Tensor, anchor: Architecture) -> Start:
    """A start from trained weights: logit = ½ log(importance / cost) − τ, where τ meets the budgets in the mean.

    The most important unit of a bundle that the network cannot do without is always likely.

    Args:
        budgets: The budgets.
        graph: The graph.
        importance: Of every edge.
        anchor: An architecture within the budgets, whose edges are likely if too few samples connect otherwise.

    Returns:
        The start.
    """
    worth = importance_per_cost(budgets, graph, importance)
    likely = needed_units(graph, importance)

    def logits(threshold: float) -> Tensor:
        free = (worth - threshold).clamp(LEAST_LOGIT, ANCHOR_LOGIT)
        return torch.where(likely, torch.tensor(ANCHOR_LOGIT), free)

    high, low = float(worth.max()) - LEAST_LOGIT, float(worth.min()) - ANCHOR_LOGIT
    if _probe(logits((low + high) / 2), budgets, graph, PROBES)[0] <= LEAST_CONNECTED:
        likely = likely | anchor.gates()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        share, fits = _probe(logits(middle), budgets, graph, 4 * PROBES)
        low, high = (low, middle) if fits and share > 0 else (middle, high)
    return _start(logits(high), IMPORTANT, budgets, graph)


def importance_per_cost(budgets: Sequence[Budget], graph: Graph, importance: Tensor) -> Tensor:
    """½ log(importance / what the edge adds to the cost); edges that add nothing are worth the most.

    Importance is a squared change of the loss; with the half, edges differ as changes of the loss do.
    """
    costs = marginal_costs(budgets, graph)
    known = importance[~graph.fixed]
    least = float(known[known > 0].min()) if bool((known > 0).any()) else 1.0
    worth = (importance.clamp_min(least).log() - costs.clamp_min(1e-9).log()) / 2
    free = (costs <= 0) | graph.fixed
    if bool(free.all()):
        return torch.zeros_like(worth).float()
    return torch.where(free, worth[~free].max(), worth).float()


def needed_units(graph: Graph, importance: Tensor) -> Tensor:
    """The most important unit of every bundle without which the input does not reach the output, as a mask."""
    mask = torch.zeros(len(graph.edges), dtype=torch.bool)
    for units in graph.bundles.values():
        without = torch.ones(1, len(graph.edges), dtype=torch.bool)
        without[:, list(units)] = False
        if not bool(graph.live(without).any()):
            mask[max(units, key=lambda unit: float(importance[unit]))] = True
    return mask


def _start(logits: Tensor, regime: str, budgets: Sequence[Budget], graph: Graph) -> Start:
    means = expected(budgets, _distribution(graph, logits))
    return Start(logits, regime, {b.name: mean for b, mean in zip(budgets, means, strict=True)})


def _budgeted(budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> tuple[Tensor, str]:
    """The logits and the regime of `budgeted_start`."""
    flat = torch.ones(len(graph.edges))
    if _affordable(flat, budgets, graph):
        return flat * _largest(lambda a: _affordable(a * flat, budgets, graph), 1.0, INITIAL_LOGIT), LOOSE
    weights = relative_costs(budgets, graph)

    def free(ease: float) -> Tensor:
        return (flat - weights / ease).clamp_min(LEAST_LOGIT)

    def anchored(ease: float) -> Tensor:
        return torch.where(anchor.gates(), torch.tensor(ANCHOR_LOGIT), free(ease))

    equal = flat * equal_logit(budgets, graph)
    connected, _ = _probe(equal, budgets, graph, 4 * PROBES)
    first = next((ease for ease in FREE_STARTS if _affordable(free(ease), budgets, graph)), None)
    if first is not None:
        random = free(_largest(lambda ease: _affordable(free(ease), budgets, graph), first, 100.0))
        if float(random.min()) >= RARE_LOGIT or connected <= LEAST_CONNECTED:
            return random, BY_COST
    if connected > LEAST_CONNECTED:
        return equal, EQUAL
    return anchored(_largest(lambda ease: _affordable(anchored(ease), budgets, graph), 1 / 300, 100.0)), ANCHORED


def equal_logit(budgets: Sequence[Budget], graph: Graph) -> float:
    """The largest logit of all edges at which samples that connect cost what the budgets allow."""
    low, high = LEAST_LOGIT, INITIAL_LOGIT
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        _, fits = _probe(torch.full((len(graph.edges),), middle), budgets, graph, 4 * PROBES)
        low, high = (middle, high) if fits else (low, middle)
    return low


def marginal_costs(budgets: Sequence[Budget], graph: Graph) -> Tensor:
    """What each edge adds to the full network, as a share of the budgets; zero where the network needs the edge."""
    rows = torch.cat(
        [torch.ones(1, len(graph.edges), dtype=torch.bool), ~torch.eye(len(graph.edges), dtype=torch.bool)]
    )
    spared = graph.live(rows[1:]).any(1)
    # `meter.full` will not do: what a measured cost is expected to take has a margin, which the full network has too
    shares = [(costs[0] - costs[1:]).clamp_min(0) / b.maximum for b in budgets for costs in [b.meter.evaluate(rows)]]
    return torch.stack(shares).sum(0) * spared


def relative_costs(budgets: Sequence[Budget], graph: Graph) -> Tensor:
    """What each edge adds, over the mean of all of them; a tenth more, so that no edge weighs nothing."""
    weights = marginal_costs(budgets, graph).float()
    return weights / weights.mean().clamp_min(1e-9) + 0.1


def _largest(good: Callable[[float], bool], low: float, high: float) -> float:
    """The largest value found good between two, by bisection of their ratio."""
    for _ in range(BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _affordable(logits: Tensor, budgets: Sequence[Budget], graph: Graph) -> bool:
    """Whether enough samples connect, and those cost what the budgets allow."""
    share, fits = _probe(logits, budgets, graph, PROBES)
    return share > LEAST_CONNECTED and fits


def _probe(logits: Tensor, budgets: Sequence[Budget], graph: Graph, count: int) -> tuple[float, bool]:
    """The share of samples that connect, and whether those cost on average what the budgets allow."""
    gates = _distribution(graph, logits).sample(count, torch.Generator().manual_seed(0)).gates
    connected = gates[graph.live(gates).any(1)]
    if not len(connected):
        return 0.0, True
    fits = all(float(budget.meter.evaluate(connected).mean()) <= budget.maximum for budget in budgets)
    return len(connected) / count, fits


def _distribution(graph: Graph, logits: Tensor) -> EdgeDistribution:
    found = EdgeDistribution(graph)
    with torch.no_grad():
        found.logits.copy_(logits)
    return found
