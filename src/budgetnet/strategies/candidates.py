"""Which architectures are looked at: where local search starts, who races, and what is finished in the end.

Nothing here is trained or remembered: the phases ask, and keep the answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, proven_within, tightened
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.local_search import Candidate, Moves, Score, Scored, local_search, samples, start_population
from budgetnet.strategies.race import field_of
from budgetnet.strategies.start import Start, marginal_costs, relative_costs

TRIMS = 4
"""Measurements of one candidate, with edges dropped after each that failed."""
NOISE = 2.0
"""Standard deviation of the noise on the preference by which samples are filled up, so that they stay different."""
DRAWN_PER_RACER = 4
"""Random samples that are drawn for each racer, so that some of them are well apart from the others."""
TAKEN_PER_RANDOM = 2
"""How many of those are looked at for each random candidate."""


def stages_of(net: SuperNetwork) -> Tensor:
    """A number for every edge, the same for edges that lead to values of one shape."""
    shapes = [net.shapes.sums[target] for target in net.graph.targets]
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    return torch.tensor([numbers[shape] for shape in shapes])


@dataclass(frozen=True)
class Candidates:
    """Proposes architectures by Γ, by the budgets and, where these are measured, by evidence.

    Args:
        graph: The graph.
        budgets: The budgets.
        learned: Γ as it is now.
        start: Γ's start.
        generator: Gives the source of randomness of a purpose, always the same one for the same purpose.
        evidence: Gives batches that stand for the data where a cost depends on its input.
        importance: Of every edge, where trained weights say it.
        stages: A number for every edge, the same for edges that lead to values of one shape.
    """

    graph: Graph
    budgets: Sequence[Budget]
    learned: EdgeDistribution
    start: Start
    generator: Callable[[str], torch.Generator]
    evidence: Callable[[], Sequence[Any]]
    importance: Tensor | None = None
    stages: Tensor | None = None

    def moves(self, purpose: str = "choose", noise: float = 0.0, preference: Tensor | None = None) -> Moves:
        """The moves of the local search, which prefer what Γ does unless they are given another preference."""
        preference = self.learned.logits.detach().cpu() if preference is None else preference
        weights = marginal_costs(self.budgets, self.graph).tolist()
        return Moves(self.graph, self.budgets, preference, weights, self.generator(purpose), noise)

    def starts(self, count: int, seen: Sequence[Tensor]) -> Iterator[Tensor]:
        """Where local search begins: Γ's mode, the best architectures seen so far, and samples of Γ."""
        drawn = samples(self.learned, self.moves("starts", NOISE), count)
        return itertools.chain([self.learned.mode().gates(), *seen], drawn)

    def racers(self, ranked: Sequence[Architecture], count: int, random: int) -> list[Tensor]:
        """The racers: the best candidates, and random ones, well apart.

        Networks that Γ's start and shared weights prefer are not always worth training; random candidates, samples
        with all edges equally likely, know of neither.

        Args:
            ranked: Candidates, the best first.
            count: Racers at most.
            random: How many of them are random.

        Returns:
            Rows of gates that hold every budget by evidence.
        """
        weights = relative_costs(self.budgets, self.graph)
        best = [architecture.live().gates() for architecture in ranked]
        field = field_of(best, weights, count - random)
        if random and self.start.equal is not None:
            equal = EdgeDistribution(self.graph, self.start.equal)
            drawn = samples(equal, self.moves("random racers", NOISE), DRAWN_PER_RACER * count)
            field = field_of(list(itertools.islice(drawn, TAKEN_PER_RANDOM * random)), weights, count, field)
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
            moves = replace(self.moves(), budgets=tightened(self.budgets, architecture, batches))
            gates = moves.shrink(architecture.gates())
            if gates is None:
                return None
            architecture = self.graph.architecture(moves.fill(gates))
        return None


class Chooser(Protocol):
    """Ranks architectures on shared weights."""

    def rank(
        self, candidates: Candidates, seen: Sequence[Tensor], fallback: Tensor, score: Score, evaluations: int
    ) -> list[Candidate]:
        """Looks for good architectures.

        Args:
            candidates: Proposes starts and moves.
            seen: Good architectures that were scored during the search.
            fallback: An architecture within the budgets.
            score: Scores an architecture.
            evaluations: How many may be scored.

        Returns:
            Candidates within the budgets, the best first.
        """
        ...


class LocalSearch:
    """The default chooser: feasible-only local search from what Γ has learned."""

    def rank(
        self, candidates: Candidates, seen: Sequence[Tensor], fallback: Tensor, score: Score, evaluations: int
    ) -> list[Candidate]:
        """See `Chooser`."""
        starts = candidates.starts(evaluations, seen)
        return local_search(candidates.moves(), starts, fallback, score, evaluations)


class Samples:
    """Γ's mode, then samples of Γ in the order in which they are drawn; shared weights are not asked."""

    def rank(
        self, candidates: Candidates, seen: Sequence[Tensor], fallback: Tensor, score: Score, evaluations: int
    ) -> list[Candidate]:
        """See `Chooser`."""
        order = itertools.count()
        drawn = Scored(lambda gates: float(next(order)), evaluations)
        start_population(candidates.moves(), candidates.starts(evaluations, ()), fallback, drawn, evaluations)
        return drawn.ranked
