"""Settle: from Γ's mode and good samples to the architecture that is kept, without ever leaving the budgets.

A feasible-only local search on shared weights, which also uses up what sampling left of the budgets.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, within_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Graph
from budgetnet.strategies.capacity import Capacity
from budgetnet.strategies.recipes import Recipe
from budgetnet.training.evaluation import RECALIBRATION_BATCHES

CLOSE = 0.9
"""The share of its budgets that a sample uses if it is close to them."""
ROUNDS, ROUND = 32, 64
"""Samples that are drawn at most to find those."""

Score = Callable[[Tensor], float]
"""What an architecture's row of gates is worth on held-out data, the smaller the better."""


@dataclass(frozen=True)
class Candidate:
    """An architecture (live gates) that is within the budgets, and its score."""

    gates: Tensor
    score: float


@dataclass(frozen=True)
class Settler:
    """The moves of the local search. Edges of the least `preference` are dropped first, of the most added first.

    `weights` is what an edge adds to the costs, to tie an edge between nodes that are not live to those that are.
    """

    graph: Graph
    budgets: Sequence[Budget]
    preference: Tensor
    weights: Sequence[float]
    generator: torch.Generator
    noise: float = 0.0
    """Added to the preference whenever edges are ordered, as a standard deviation."""

    def shrink(self, gates: Tensor) -> Tensor | None:
        """Drops edges, least preferred first, until every budget holds; None if the last path is still too much."""
        gates = self.graph.live(gates[None])[0]
        for edge in self._noisy(self.noise).argsort().tolist():
            if not gates.any() or bool(within_all(self.budgets, gates[None])[0]):
                break
            rest = gates.clone()
            rest[edge] = False
            rest = self.graph.live(rest[None])[0]
            gates = rest if rest.any() else gates
        return gates if bool(within_all(self.budgets, gates[None])[0]) else None

    def fill(self, gates: Tensor, noise: float | None = None, without: Tensor | None = None) -> Tensor:
        """Adds edges, most preferred first, as long as every budget holds: what is left of the budgets is used.

        Edges of the mask `without` stay out. One that does not fit is not tried again, since costs grow with the edges.
        """
        liked = self._noisy(self.noise if noise is None else noise).argsort(descending=True).tolist()
        order = [edge for edge in liked if not gates[edge] and (without is None or not without[edge])]
        while order:
            rows = gates.repeat(len(order), 1)
            for row, edge in zip(rows, order, strict=True):
                row[self.graph.ear(gates, edge, self.weights)] = True
            fits = within_all(self.budgets, rows)
            if without is not None:
                fits &= ~(rows & without).any(1)
            if not fits.any():
                break
            gates = rows[int(fits.nonzero()[0])]
            order = [edge for edge, fit in zip(order, fits.tolist(), strict=True) if fit and not gates[edge]]
        return gates

    def neighbour(self, gates: Tensor) -> Tensor | None:
        """Drops a random live edge, and more until others fit; fills up with others, then with whatever fits.

        So neighbours use up the budgets, and none is a mere part of `gates`. None if there is no other architecture.
        """
        live, dropped = gates.nonzero().flatten(), torch.zeros_like(gates)
        for edge in live[torch.randperm(len(live), generator=self.generator)].tolist():
            dropped[edge] = True
            rest = self.graph.live((gates & ~dropped)[None])[0]
            found = self.fill(self.fill(rest, noise=2.0, without=dropped))
            if found.any() and not torch.equal(found, gates):
                return found
        return None

    def _noisy(self, noise: float) -> Tensor:
        return self.preference + noise * torch.randn(self.preference.shape, generator=self.generator)


def affordable(recipe: Recipe, steps: int) -> int:
    """How many candidates may be scored for a finish of so many steps. A forward pass is a third of a step."""
    images = recipe.settle_examples + RECALIBRATION_BATCHES * recipe.batch_size
    allowed = recipe.settle_share * steps * recipe.batch_size / (images / 3)
    return max(6, min(recipe.settle_evaluations, int(allowed)))


def samples(
    distribution: EdgeDistribution, settler: Settler, count: int, capacity: Capacity | None = None, spare: int = 1
) -> Iterator[Tensor]:
    """Architectures of Γ (live gates) within the budgets and close to one of them, each filled up when it is taken.

    With a capacity, they are those of most capacity among `spare` times as many. Where too few are close, the closest
    stand in: what is filled up from far below is no longer a sample of Γ, and one that edges were dropped from even
    less.
    """
    graph, uses = settler.graph, dict[bytes, tuple[float, Tensor]]()
    for _ in range(ROUNDS):
        gates = graph.live(distribution.sample(ROUND, settler.generator, connected=True).gates)
        gates = gates[within_all(settler.budgets, gates)]
        for row, use in zip(gates, _use(settler.budgets, gates), strict=True):
            uses.setdefault(row.numpy().tobytes(), (use, row))
        if sum(use >= CLOSE for use, _ in uses.values()) >= count * spare:
            break
    close = [row for use, row in uses.values() if use >= CLOSE]
    if capacity and len(close) > count:
        close = _most(close, capacity, max(count, len(close) // spare))
    far = sorted((found for found in uses.values() if found[0] < CLOSE), key=lambda found: -found[0])
    for row in [*close, *(row for _, row in far)][:count]:
        yield settler.fill(row)


def _most(rows: Sequence[Tensor], capacity: Capacity, count: int) -> list[Tensor]:
    """The `count` of most capacity, in the order in which they were drawn."""
    best = capacity(torch.stack(list(rows))).argsort(descending=True, stable=True)[:count]
    return [rows[place] for place in best.sort().values.tolist()]


def _use(budgets: Sequence[Budget], gates: Tensor) -> list[float]:
    """The share of the budget that each architecture is closest to."""
    shares: list[float] = torch.stack([b.meter.evaluate(gates) / b.maximum for b in budgets]).amax(0).tolist()
    return shares


class _Scored:
    """The candidates that were scored, each once, and how many more may be."""

    def __init__(self, score: Score, evaluations: int) -> None:
        self._score, self._allowed = score, evaluations
        self.found: dict[bytes, Candidate] = {}

    def __call__(self, gates: Tensor) -> Candidate:
        key = gates.numpy().tobytes()
        if key not in self.found:
            self.found[key] = Candidate(gates, self._score(gates))
        return self.found[key]

    @property
    def left(self) -> int:
        return self._allowed - len(self.found)

    @property
    def best(self) -> Candidate:
        return min(self.found.values(), key=_score)


def settle(
    settler: Settler, starts: Iterable[Tensor], fallback: Tensor, score: Score, evaluations: int, method: str = "climb"
) -> list[Candidate]:
    """The best candidates first, by one of three methods with the same number of evaluations.

    `climb`: the first third looks at different starts, the rest climbs from the best. `local`: climbs from one start.
    `evolution`: regularised evolution (Real et al., 2019) of a population of a quarter of the evaluations.
    """
    scored = _Scored(score, evaluations)
    first = {"climb": evaluations // 3, "local": 1, "evolution": evaluations // 4}[method]
    population = []
    for start in starts:
        if (gates := settler.shrink(start)) is not None:
            population.append(scored(settler.fill(gates)))
        if len(scored.found) >= max(1, first):
            break
    population = population or [scored(settler.fill(fallback))]
    if method == "evolution":
        _evolve(settler, population, scored)
    else:
        _climb(settler, scored)
    return sorted(scored.found.values(), key=_score)


def _climb(settler: Settler, scored: _Scored) -> None:
    """From the best candidate to a better neighbour, until nothing is left to spend."""
    for _ in range(4 * scored.left):
        if not scored.left:
            break
        neighbour = settler.neighbour(scored.best.gates)
        if neighbour is not None:
            scored(neighbour)


def _evolve(settler: Settler, population: Sequence[Candidate], scored: _Scored) -> None:
    """The best of a random quarter has a child, which takes the place of the oldest."""
    living, size = deque(population), math.ceil(len(population) / 4) + 1
    for _ in range(4 * scored.left):
        if not scored.left:
            break
        drawn = torch.randint(len(living), (size,), generator=settler.generator).tolist()
        child = settler.neighbour(min((living[i] for i in drawn), key=_score).gates)
        if child is not None:
            living.append(scored(child))
            living.popleft()


def _score(candidate: Candidate) -> float:
    return candidate.score
