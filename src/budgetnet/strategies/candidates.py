"""Which architectures are looked at: where settle starts, who races, and what is finished in the end.

Nothing here is trained or remembered: the loop asks, and keeps the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, proven_within, tightened
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture, Graph
from budgetnet.strategies.capacity import Capacity
from budgetnet.strategies.local_search import Settler, samples
from budgetnet.strategies.policy import marginal_costs, relative_costs
from budgetnet.strategies.race import field_of
from budgetnet.strategies.recipes import Recipe

TRIMS = 4
"""Measurements of one candidate, with edges dropped after each that failed."""
NOISE = 2.0
"""Of the preference by which samples are filled up, so that they stay different."""


@dataclass(frozen=True)
class Chooser:
    """Chooses by Γ, by the budgets and, where these are measured, by evidence."""

    graph: Graph
    budgets: Sequence[Budget]
    recipe: Recipe
    learned: EdgeDistribution
    start: EdgeDistribution
    """Γ as it was in the beginning."""
    equal: EdgeDistribution
    """All edges equally likely."""
    generator: Callable[[str], torch.Generator]
    """The same one for the same purpose, whenever it is asked for."""
    capacity: Callable[[], Capacity]
    evidence: Callable[[], Sequence[Any]]
    """Batches that stand for the data where a cost depends on its input."""

    @property
    def knows(self) -> bool:
        """Whether Γ is asked at all; evolution and local search do without."""
        return self.recipe.settle == "climb"

    @property
    def _roomy(self) -> tuple[Capacity | None, int]:
        """By what samples are taken from among more of them, and how many more."""
        return (self.capacity() if self.recipe.spare > 1 else None), self.recipe.spare

    def settler(self, purpose: str = "settle", noise: float = 0.0) -> Settler:
        """The moves of settle, which prefer what Γ does."""
        preference = self.learned.logits.detach().cpu()
        if not self.knows:
            preference, noise = torch.zeros_like(preference), 1.0
        weights = marginal_costs(self.budgets, self.graph).tolist()
        return Settler(self.graph, self.budgets, preference, weights, self.generator(purpose), noise)

    def starts(self, count: int, seen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Where settle begins: Γ's mode, what was seen to be good, and samples; without Γ, samples of its start."""
        if not self.knows:
            return samples(self.start, self.settler("starts"), count)
        drawn = samples(self.learned, self.settler("starts", NOISE), count, *self._roomy)
        return itertools.chain([self.learned.mode().gates(), *seen], drawn)

    def racers(self, ranked: Sequence[Architecture]) -> list[Tensor]:
        """The best candidates and samples with all edges equally likely, well apart; all hold every budget by evidence.

        What Γ's start and shared weights prefer is not always worth training; these samples know of neither.
        """
        recipe, weights = self.recipe, relative_costs(self.budgets, self.graph)
        best = [architecture.live().gates() for architecture in ranked]
        field = field_of(best, weights, recipe.race - recipe.wild)
        if recipe.wild:
            drawn = samples(self.equal, self.settler("wild", NOISE), 4 * recipe.race, *self._roomy)
            field = field_of(list(itertools.islice(drawn, 2 * recipe.wild)), weights, recipe.race, field)
        held = [self.trimmed(self.graph.architecture(gates)) for gates in field]
        return [a.gates() for a in dict.fromkeys(held) if a is not None]

    def first_that_holds(self, ranked: Sequence[Architecture]) -> tuple[Architecture | None, list[Architecture]]:
        """The best one that holds every budget by evidence, with edges dropped if need be, and those after it."""
        for place, architecture in enumerate(ranked):
            if (held := self.trimmed(architecture)) is not None:
                return held, list(ranked[place + 1 :])
        return None, []

    def trimmed(self, architecture: Architecture) -> Architecture | None:
        """The architecture, or one like it with cheaper edges or fewer, that holds every budget by evidence."""
        batches = self.evidence()
        for _ in range(TRIMS):
            if proven_within(self.budgets, architecture, batches):
                return architecture
            settler = replace(self.settler(), budgets=tightened(self.budgets, architecture, batches))
            gates = settler.shrink(architecture.gates())
            if gates is None:
                return None
            architecture = self.graph.architecture(settler.fill(gates))
        return None
