"""Settle: from Γ's mode and good samples to the architecture that is kept, without ever leaving the budgets.

A feasible-only local search on shared weights, which also uses up what sampling left of the budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from budgetnet.budget import Budget, within_all
from budgetnet.graph import Graph

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

    def shrink(self, gates: Tensor) -> Tensor | None:
        """Drops edges, least preferred first, until every budget holds; None if the last path is still too much."""
        gates = self.graph.live(gates[None])[0]
        for edge in self._noisy(0.0).argsort().tolist():
            if not gates.any() or bool(within_all(self.budgets, gates[None])[0]):
                break
            rest = gates.clone()
            rest[edge] = False
            rest = self.graph.live(rest[None])[0]
            gates = rest if rest.any() else gates
        return gates if bool(within_all(self.budgets, gates[None])[0]) else None

    def fill(self, gates: Tensor, noise: float = 0.0, without: int | None = None) -> Tensor:
        """Adds edges, most preferred first, as long as every budget holds: what is left of the budgets is used.

        An edge that does not fit is not tried again, since costs grow with the edges.
        """
        order = [e for e in self._noisy(noise).argsort(descending=True).tolist() if e != without and not gates[e]]
        while order:
            rows = gates.repeat(len(order), 1)
            for row, edge in zip(rows, order, strict=True):
                row[self.graph.ear(gates, edge, self.weights)] = True
            fits = within_all(self.budgets, rows)
            if without is not None:
                fits &= ~rows[:, without]
            if not fits.any():
                break
            gates = rows[int(fits.nonzero()[0])]
            order = [edge for edge, fit in zip(order, fits.tolist(), strict=True) if fit and not gates[edge]]
        return gates

    def neighbour(self, gates: Tensor) -> Tensor | None:
        """Drops one random live edge and fills up with others; None if that edge is needed."""
        live = gates.nonzero().flatten()
        dropped = int(live[torch.randint(len(live), (), generator=self.generator)])
        rest = gates.clone()
        rest[dropped] = False
        rest = self.graph.live(rest[None])[0]
        return self.fill(rest, noise=2.0, without=dropped) if rest.any() else None

    def _noisy(self, noise: float) -> Tensor:
        return self.preference + noise * torch.randn(self.preference.shape, generator=self.generator)


def settle(
    settler: Settler, starts: Sequence[Tensor], fallback: Tensor, score: Score, evaluations: int
) -> list[Candidate]:
    """The best candidates first. The first third of the evaluations looks at different starts, the rest climbs."""
    found: dict[bytes, Candidate] = {}

    def look(gates: Tensor) -> Candidate:
        key = gates.numpy().tobytes()
        if key not in found:
            found[key] = Candidate(gates, score(gates))
        return found[key]

    shrunk = [settler.shrink(start) for start in starts]
    feasible = [gates for gates in shrunk if gates is not None] or [fallback]
    for gates in feasible:
        look(settler.fill(gates))
        if len(found) >= max(1, evaluations // 3):
            break
    best = min(found.values(), key=lambda candidate: candidate.score)
    for _ in range(4 * evaluations):
        if len(found) >= evaluations:
            break
        neighbour = settler.neighbour(best.gates)
        if neighbour is not None:
            best = min(best, look(neighbour), key=lambda candidate: candidate.score)
    return sorted(found.values(), key=lambda candidate: candidate.score)
