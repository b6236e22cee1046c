"""Which architectures are looked at: what Γ proposes, who races, and what is finished in the end.

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
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.moves import Moves, brought_within, samples
from budgetnet.strategies.race import field_of
from budgetnet.strategies.start import marginal_costs, relative_costs

TRIMS = 4
"""Measurements of one candidate, with edges dropped after each that failed."""
NOISE = 2.0
"""Standard deviation of the noise on the preference by which samples are filled up, so that they stay different."""
DRAWN_PER_RACER = 4
"""Architectures that Γ proposes for each racer, so that some of them are well apart from the others."""
FEWEST = 2
"""Channels that no layer is narrowed below, if it has them: a U-Net with a single one before its output lost five
points of accuracy, where uniform widths at the same cost lost one."""
Score = Callable[[Tensor], float]
"""Validation loss of one architecture, given as a row of gates; lower is better."""


def stages_of(net: SuperNetwork) -> Tensor:
    """A number for every edge, the same for edges that lead to values of one shape."""
    shapes = [net.shapes.sums[target] for target in net.graph.targets]
    numbers = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    return torch.tensor([numbers[shape] for shape in shapes])


def kept_last(net: SuperNetwork) -> Tensor:
    """The mask of every branch, and of the first units of every bundle: as many as hold `FEWEST` channels."""
    mask = torch.tensor([edge.bundle is None for edge in net.graph.edges])
    bundles = [pair for pair in zip(net.graph.operations, net.edge_modules, strict=True) if pair[0].bundle]
    for operation, module in bundles:
        assert isinstance(module, Region)
        for units, axis in zip(operation.axes, module.axes, strict=True):
            held = 0
            for unit, blocks in zip(units, axis.sizes, strict=True):
                mask[unit] = mask[unit] or held < FEWEST
                held += blocks * axis.channels
    return mask


@dataclass(frozen=True)
class Candidates:
    """Proposes architectures by Γ, by the budgets and, where these are measured, by evidence.

    Args:
        graph: The graph.
        budgets: The budgets.
        learned: Γ as it is now.
        generator: Gives the source of randomness of a purpose, always the same one for the same purpose.
        evidence: Gives batches that stand for the data where a cost depends on its input.
        importance: Of every edge, where trained weights say it.
        stages: A number for every edge, the same for edges that lead to values of one shape.
        kept_last: A mask of what a network is not narrowed below, as far as the budgets allow.
    """

    graph: Graph
    budgets: Sequence[Budget]
    learned: EdgeDistribution
    generator: Callable[[str], torch.Generator]
    evidence: Callable[[], Sequence[Any]]
    importance: Tensor | None = None
    stages: Tensor | None = None
    kept_last: Tensor | None = None

    def moves(self, purpose: str = "choose", noise: float = 0.0, preference: Tensor | None = None) -> Moves:
        """Moves that prefer what Γ does unless they are given another preference."""
        preference = self.learned.logits.detach().cpu() if preference is None else preference
        weights = marginal_costs(self.budgets, self.graph).tolist()
        return Moves(self.graph, self.budgets, preference, weights, self.generator(purpose), noise)

    def proposals(self, count: int) -> Iterator[Tensor]:
        """Γ's mode, then samples of Γ."""
        drawn = samples(self.learned, self.moves("starts", NOISE), count)
        return itertools.chain([self.learned.mode().gates()], drawn)

    def racers(self, ranked: Sequence[Architecture], count: int) -> list[Tensor]:
        """The racers: the first candidates that are well apart from each other.

        Args:
            ranked: Candidates, the best first.
            count: Racers at most.

        Returns:
            Rows of gates that hold every budget by evidence.
        """
        field = field_of([one.live().gates() for one in ranked], relative_costs(self.budgets, self.graph), count)
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
    """Proposes architectures, the best first."""

    def rank(self, candidates: Candidates, fallback: Tensor, score: Score, count: int) -> list[Tensor]:
        """Looks for good architectures.

        Args:
            candidates: Proposes.
            fallback: An architecture within the budgets.
            score: Scores an architecture, if it is asked.
            count: How many are wanted.

        Returns:
            Live gates within the budgets, the best first.
        """
        ...


class Samples:
    """The default chooser: Γ's mode, then samples of Γ as they are drawn.

    Shared weights are not asked: they hardly rank architectures (`benchmarks/ranking.py`), and Γ has learned from them.
    """

    def rank(self, candidates: Candidates, fallback: Tensor, score: Score, count: int) -> list[Tensor]:
        """See `Chooser`."""
        return brought_within(candidates.moves(), candidates.proposals(count), fallback, count)
