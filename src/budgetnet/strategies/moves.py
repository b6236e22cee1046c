"""Moves that end within the budgets: edges are dropped until every budget holds, and added while one more fits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, within_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Graph
from budgetnet.network.removal import lifetimes

CLOSE = 0.9
"""The share of a budget that a sample must use to count as close to it: above it little is filled in."""
ROUNDS, ROUND = 32, 64
"""Samples are drawn in rounds of 64, 32 rounds at most, until enough of them are close to a budget."""


@dataclass(frozen=True)
class Moves:
    """Edges of the least preference are dropped first, those of the most are added first.

    Args:
        graph: The graph.
        budgets: What no move may exceed.
        preference: How much each edge is liked.
        weights: What each edge adds to the costs, to tie an edge between nodes that are not live to those that are.
        generator: The source of randomness.
        noise: Standard deviation of what is added to the preference whenever edges are ordered.
    """

    graph: Graph
    budgets: Sequence[Budget]
    preference: Tensor
    weights: Sequence[float]
    generator: torch.Generator
    noise: float = 0.0

    def shrink(self, gates: Tensor) -> Tensor | None:
        """Drops edges, least preferred first, until every budget holds; None if the last path is still too much.

        Costs grow with the edges, so the number of drops is found by bisection. Where one does not, and the last path
        is too much, the fewest drops after which the budgets hold are looked for.
        """
        gates = self.graph.live(gates[None])[0]
        survived = lifetimes(self.graph, gates, self._noisy(self.noise).argsort().tolist())
        if not gates.any() or self._fits(gates):
            return gates if gates.any() else None
        rows = survived >= torch.arange(int(survived.max()) + 1)[:, None]
        if self._fits(rows[-1]):
            return rows[_first(lambda drops: self._fits(rows[drops]), 0, len(rows) - 1)]
        fits = within_all(self.budgets, rows)
        return rows[int(fits.nonzero()[0])] if fits.any() else None

    def fill(self, gates: Tensor, noise: float | None = None, without: Tensor | None = None) -> Tensor:
        """Fills the remaining budget with further edges, most preferred first.

        Edges of the mask `without` stay out. One that does not fit is not tried again, since costs grow with the edges:
        so as many as fit together are found by bisection, and those that no longer fit alone are left out at once.
        """
        without = torch.zeros_like(gates) if without is None else without
        liked = self._noisy(self.noise if noise is None else noise).argsort(descending=True).tolist()
        order = [edge for edge in liked if not gates[edge] and not without[edge]]
        while order:
            rows = gates | self._additions(gates, self._tied(gates, order)).cumsum(0).bool()
            taken = self._taken(rows, without)
            left = order[taken:] if taken == len(rows) else order[taken + 1 :]
            gates = rows[taken - 1] if taken else gates
            order = [edge for edge in left if not gates[edge]]
            if order and taken < len(rows):
                order = self._fitting(gates, order, without)
        return gates

    def _taken(self, rows: Tensor, without: Tensor) -> int:
        """How many of these rows, each with more edges than the one before, fit."""
        return _first(lambda place: not self._fits(rows[place], without), -1, len(rows))

    def _tied(self, gates: Tensor, order: Sequence[int]) -> Sequence[int]:
        """The first edges that lie between live nodes, up to one that does not: with it, others may be tied anew."""
        sources, targets = self.graph.sources, self.graph.targets
        ends = {node for edge in gates.nonzero().flatten().tolist() for node in (sources[edge], targets[edge])}
        for place, edge in enumerate(order):
            if not {sources[edge], targets[edge]} <= ends:
                return order[: place + 1]
        return order

    def _additions(self, gates: Tensor, edges: Sequence[int]) -> Tensor:
        """A row for each edge, with what ties it to the live ones."""
        rows, ears = torch.zeros(len(edges), len(gates), dtype=torch.bool), self.graph.ears(gates, edges, self.weights)
        rows[[row for row, ear in enumerate(ears) for _ in ear], list(itertools.chain(*ears))] = True
        return rows

    def _fitting(self, gates: Tensor, edges: Sequence[int], without: Tensor) -> list[int]:
        """The edges that fit one by one."""
        rows = gates | self._additions(gates, edges)
        fits = within_all(self.budgets, rows) & ~(rows & without).any(1)
        return [edge for edge, fit in zip(edges, fits.tolist(), strict=True) if fit]

    def _fits(self, gates: Tensor, without: Tensor | None = None) -> bool:
        if without is not None and bool((gates & without).any()):
            return False
        return bool(within_all(self.budgets, gates[None])[0])

    @property
    def late(self) -> bool:
        """Whether a cost is no longer asked, so that no new architecture is known to fit."""
        return any(budget.meter.late for budget in self.budgets)

    def _noisy(self, noise: float) -> Tensor:
        return self.preference + noise * torch.randn(self.preference.shape, generator=self.generator)


def _first(good: Callable[[int], bool], low: int, high: int) -> int:
    """The first number above `low`, which is not good, that is good, by bisection; `high` if none is below it."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def samples(distribution: EdgeDistribution, moves: Moves, count: int) -> Iterator[Tensor]:
    """Samples of Γ within the budgets and close to one of them, each filled up when it is taken.

    Where too few are close, the closest stand in: an architecture that is filled up from far below is no longer a
    sample of Γ, and one that edges were dropped from even less.

    Args:
        distribution: Γ.
        moves: The moves, which fill up.
        count: Samples at most.

    Yields:
        Live gates.
    """
    graph, uses = moves.graph, dict[bytes, tuple[float, Tensor]]()
    for _ in range(ROUNDS):
        gates = graph.live(distribution.sample(ROUND, moves.generator, connected=True).gates)
        gates = gates[within_all(moves.budgets, gates)]
        for row, use in zip(gates, _use(moves.budgets, gates), strict=True):
            uses.setdefault(row.numpy().tobytes(), (use, row))
        if sum(use >= CLOSE for use, _ in uses.values()) >= count:
            break
    close = [row for use, row in uses.values() if use >= CLOSE]
    far = sorted((found for found in uses.values() if found[0] < CLOSE), key=lambda found: -found[0])
    for row in [*close, *(row for _, row in far)][:count]:
        yield moves.fill(row)


def _use(budgets: Sequence[Budget], gates: Tensor) -> list[float]:
    """The share of the budget that each architecture is closest to."""
    shares: list[float] = torch.stack([b.meter.evaluate(gates) / b.maximum for b in budgets]).amax(0).tolist()
    return shares


def brought_within(moves: Moves, starts: Iterable[Tensor], fallback: Tensor, count: int) -> list[Tensor]:
    """The first `count` different starts that can be brought within the budgets, filled up; else the fallback alone.

    Args:
        moves: The moves.
        starts: Rows of gates.
        fallback: Gates within the budgets, for the case that no start can be brought within them.
        count: How many at most.

    Returns:
        Live gates, in the order of the starts.
    """
    found: dict[bytes, Tensor] = {}
    for start in starts:
        if (gates := moves.shrink(start)) is not None:
            filled = moves.fill(gates)
            found.setdefault(filled.numpy().tobytes(), filled)
        if len(found) >= count or moves.late:
            break
    return list(found.values()) or [moves.fill(fallback)]
