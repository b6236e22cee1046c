"""Before any training: can the budgets be met, singly and together, and what do they leave?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget
from budgetnet.costs import Meter
from budgetnet.errors import UserError
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture, Graph

ENUMERABLE = 14
"""Graphs of at most so many edges are enumerated: 16,384 architectures."""

RANDOM_PATHS = 192
"""Paths tried in larger graphs, under random weights: a second for a cost of some milliseconds."""
SHORTLIST = 3
"""The best of these, from which single edges are flipped."""
EXPECTATION_SAMPLES = 64
"""Samples behind an expected cost, whose error is then about an eighth of the spread of one sample."""


@dataclass(frozen=True)
class Profile:
    """A budget against the space: the smallest reachable and the full cost."""

    budget: Budget
    smallest: float
    architecture: Architecture
    exact: bool
    full: float

    @property
    def satisfiable(self) -> bool:
        """Whether some architecture is known to meet this budget alone."""
        return self.smallest <= self.budget.maximum


def profile(budgets: Sequence[Budget], seed: int = 0) -> list[Profile]:
    """The profile table."""
    return [_profile(budget, seed) for budget in budgets]


def _profile(budget: Budget, seed: int) -> Profile:
    architecture, exact = smallest(budget.meter, seed)
    value = budget.meter.evidence(architecture).upper_bound
    return Profile(budget, value, architecture, exact, budget.meter.full)


def expected(budgets: Sequence[Budget], distribution: EdgeDistribution, seed: int = 0) -> list[float]:
    """The mean cost of a sample under each budget; one that does not connect is charged the full cost."""
    gates = distribution.sample(EXPECTATION_SAMPLES, torch.Generator().manual_seed(seed)).gates
    return [float(budget.meter.evaluate(gates).mean()) for budget in budgets]


def check(profiles: Sequence[Profile], seed: int = 0) -> Architecture:
    """An architecture that meets every budget; if none is found, an error with the smallest reachable cost."""
    for row in profiles:
        if not row.satisfiable:
            least = "smallest connected architecture of this space" if row.exact else "smallest architecture found"
            more = ", allow more time" if row.budget.meter.late else ""
            raise UserError(
                f"the budget {row.budget.text} cannot be met: the {least} costs {row.budget.show(row.smallest)} "
                f"(the full network {row.budget.show(row.full)}); raise the budget{more} or use a smaller space"
            )
    return _joint([row.budget for row in profiles], [row.architecture for row in profiles], seed)


def _joint(budgets: Sequence[Budget], starts: Sequence[Architecture], seed: int) -> Architecture:
    graph = budgets[0].meter.graph

    def excess(gates: Tensor) -> Tensor:
        worst = [budget.violation(budget.meter.evaluate(gates)).clamp_min(0) for budget in budgets]
        return torch.stack(worst).sum(0)

    best, exact = minimise(graph, excess, seed, [start.gates() for start in starts])
    if float(excess(best[None])[0]) > 0:
        reach = ", ".join(f"{b.name} {b.show(float(b.meter.evaluate(best[None])[0]))}" for b in budgets)
        late = any(budget.meter.late for budget in budgets)
        found = "no architecture meets them" if exact and not late else "not found"
        raise UserError(
            f"the budgets {' and '.join(b.text for b in budgets)} can be met singly but not together: {found}, the "
            f"smallest joint violation has {reach}; raise one of them or use another space"
        )
    return graph.architecture(best)


def smallest(meter: Meter, seed: int = 0) -> tuple[Architecture, bool]:
    """The cheapest connected architecture, and whether that is certain.

    A cost that knows it is asked (a measured one knows it by its estimate); otherwise small graphs are enumerated.
    """
    known = meter.cost.smallest()
    if known is not None:
        return known, not meter.cost.measured
    gates, exact = minimise(meter.graph, lambda rows: _expected(meter, rows), seed)
    return meter.graph.architecture(gates), exact and not meter.stochastic and not meter.late


def _expected(meter: Meter, gates: Tensor) -> Tensor:
    """Costs for comparison; a random one is averaged over a few draws."""
    draws = 8 if meter.stochastic else 1
    return torch.stack([meter.evaluate(gates) for _ in range(draws)]).mean(0)


def minimise(
    graph: Graph, objective: Callable[[Tensor], Tensor], seed: int, starts: Sequence[Tensor] = ()
) -> tuple[Tensor, bool]:
    """The connected gates of least objective, and whether every architecture was looked at.

    Large graphs: random paths (a path is minimal for every cost that grows with its edges), then flips of single edges.
    """
    if len(graph.edges) <= ENUMERABLE:
        everything = torch.cartesian_prod(*[torch.tensor([False, True])] * len(graph.edges)).view(-1, len(graph.edges))
        connected = everything[graph.live(everything).any(1)]
        return connected[objective(connected).argmin()], True
    candidates = torch.stack([*starts, graph.full.gates(), *random_paths(graph, RANDOM_PATHS, seed)])
    values = objective(candidates)
    best: tuple[float, Tensor] = (math.inf, candidates[0])
    for start in values.argsort()[:SHORTLIST].tolist():
        best = min(best, _descend(graph, objective, candidates[start], float(values[start])), key=lambda pair: pair[0])
    return best[1], False


def _descend(graph: Graph, objective: Callable[[Tensor], Tensor], gates: Tensor, value: float) -> tuple[float, Tensor]:
    """Flips the best single edge as long as that helps."""
    while value > 0:
        neighbours = gates ^ torch.eye(len(gates), dtype=torch.bool)
        neighbours = neighbours[graph.live(neighbours).any(1)]
        values = objective(neighbours) if len(neighbours) else torch.tensor([math.inf])
        if not float(values.min()) < value:
            break
        value, gates = float(values.min()), neighbours[values.argmin()]
    return value, gates


def random_paths(graph: Graph, count: int, seed: int) -> list[Tensor]:
    """Shortest paths under unit weights and under random ones; fixed edges are there anyway, so they weigh nothing."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.ones(len(graph.edges))]
    weights += [torch.empty(len(graph.edges)).exponential_(generator=generator) for _ in range(count - 1)]
    rows = []
    for weight in weights:
        row = torch.zeros(len(graph.edges), dtype=torch.bool)
        row[graph.shortest_path(torch.where(graph.fixed, 0.0, weight).tolist())] = True
        rows.append(row)
    return rows
