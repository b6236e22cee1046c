"""The strategy for trained weights: importance, a choice that includes uniform widths, a short race, a finish."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from budgetnet.data.feeds import Batch, Feed
from budgetnet.data.nested import rows
from budgetnet.errors import UserError
from budgetnet.naming.files import read_bytes, write_file
from budgetnet.network.graph import Architecture, Graph
from budgetnet.strategies import recipes
from budgetnet.strategies.candidates import Candidates, Chooser, Score
from budgetnet.strategies.importance import Importance, measure
from budgetnet.strategies.moves import brought_within
from budgetnet.strategies.phases import STREAMS, Choose, Finish, Phase
from budgetnet.strategies.race import Race
from budgetnet.strategies.racing import RunRace
from budgetnet.strategies.recipes import INHERITED_RISE, Recipe
from budgetnet.strategies.start import importance_per_cost, importance_start
from budgetnet.strategies.state import Inherited, SearchState
from budgetnet.strategies.widths import random_widths, uniform_widths
from budgetnet.training.optimization import Optimization
from budgetnet.training.trainer import Trainer

RANDOM_WIDTHS = 2
"""Networks of random widths among the candidates."""
CANDIDATES = 4 + RANDOM_WIDTHS
"""Two knapsacks, Γ's mode, uniform and random widths."""
LEAST_SHARE = 2 / 3
"""Of the budgets that a network with something of every layer may cost for narrowing to be enough."""
CHEAP_SHARE = 0.2
"""Of the full network's cost up to which such a network is cheap."""
UNIT_STEP = 1e-4
"""By how much less a unit is preferred than the one before it, whose channels are more important."""
EPOCHS = 8.0
"""Of the whole training by default: the weights are trained already."""


@dataclass(frozen=True)
class MeasureImportance:
    """One pass over some training examples: units are filled by importance, and Γ starts at importance per cost.

    Args:
        examples: Training examples of the pass.
        shared: A file that keeps what the pass found, if several searches share it; the first of them writes it.
    """

    examples: int
    shared: Path | None = None
    name: ClassVar[str] = "importance"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        clock = time.monotonic()
        trainer.record("phase", self.name, 0, {"steps": self.examples, "unit": "examples"}, epoch=0)
        found = self.measured(state, trainer)
        found.arrange(state.net)
        state.inherited = Inherited(found.edges)
        state.start = importance_start(state.budgets, state.net.graph, found.edges, state.fallback)
        with torch.no_grad():
            state.searching.distribution.logits.copy_(state.start.logits)
        trainer.spend(self.name, time.monotonic() - clock)
        return state

    def measured(self, state: SearchState, trainer: Trainer) -> Importance:
        """The importance on training data, or what another search has found."""
        if self.shared is not None and self.shared.exists():
            return Importance.from_bytes(read_bytes(self.shared), state.net, str(self.shared))
        found = measure(state.net, trainer.task, self._batches(trainer.train))
        if self.shared is not None:
            write_file(self.shared, found.to_bytes())
        return found

    def _batches(self, train: Feed) -> Iterator[Batch]:
        """Training batches until there are enough examples, of one epoch at most."""
        seen = 0
        for batch in train.training(STREAMS[self.name]):
            yield batch
            seen += rows(batch[0])
            if seen >= self.examples:
                return


class Worth:
    """The chooser for trained weights: knapsacks on importance and cost, Γ's mode, uniform and random widths.

    A knapsack comes first, whatever the scores say: what loses least at once, with inherited weights, is often not what
    ends best. Where narrowing is enough, that is the narrowed network, else the one that may drop branches.
    """

    def rank(self, candidates: Candidates, fallback: Tensor, score: Score, count: int) -> list[Tensor]:
        """See `Chooser`: all of these few are scored."""
        always = list(self.always(candidates))
        rows = brought_within(candidates.moves(), always, fallback, count)
        losses = [score(gates) for gates in rows]
        order = sorted(range(len(rows)), key=lambda i: (not torch.equal(rows[i], always[0]), losses[i]))
        return [rows[i] for i in order]

    def always(self, candidates: Candidates) -> Iterator[Tensor]:
        """The candidates, the knapsack that comes first before all others."""
        moves, packed = candidates.moves("widths"), [narrowed(candidates), thinned(candidates)]
        widths = [uniform_widths(moves), *(random_widths(moves) for _ in range(RANDOM_WIDTHS))]
        first = packed if narrow_enough(candidates) else reversed(packed)
        yield from (gates for gates in first if gates is not None)
        yield candidates.learned.mode().gates()
        yield from (gates for gates in widths if gates is not None)


def knapsack(candidates: Candidates, kept: Tensor | None = None) -> Tensor | None:
    """A greedy knapsack: edges of the least importance per cost are dropped first.

    Args:
        candidates: What is known.
        kept: A mask of edges that are dropped last, if any.

    Returns:
        Gates within the budgets; None if there are none.
    """
    assert candidates.importance is not None
    worth = importance_per_cost(candidates.budgets, candidates.graph, candidates.importance)
    return _packed(candidates, worth if kept is None else torch.where(kept, float(worth.max()) + 1, worth))


def _packed(candidates: Candidates, preference: Tensor) -> Tensor | None:
    """The full network without the edges of the least preference, filled up by those of the most that still fit."""
    moves = candidates.moves(preference=preference)
    gates = moves.shrink(candidates.graph.full.gates())
    return None if gates is None else moves.fill(gates)


def thinned(candidates: Candidates) -> Tensor | None:
    """The knapsack that drops whole branches, and fills up with units of the best that it dropped.

    Branches are compared by their importance as a share of the largest in their stage: early ones change every later
    value, so that their gradients are large, but a network that is trained again does not need them more.
    """
    assert candidates.importance is not None
    graph = candidates.graph
    importance = _within_stages(candidates.importance, graph, candidates.stages)
    worth = importance_per_cost(candidates.budgets, graph, importance)
    most, least = float(worth.max()), float(worth.min())
    preference = worth.clone()
    for units in graph.bundles.values():
        behind = [worth[edge] for edge in graph.outgoing[graph.targets[units[0]]]]
        above = max(map(float, behind), default=most) - least
        preference[list(units)] = most + 1 + above - torch.arange(len(units)) * UNIT_STEP
    return _packed(candidates, preference)


def _within_stages(importance: Tensor, graph: Graph, stages: Tensor | None) -> Tensor:
    """The importance of branches as a share of the largest in their stage."""
    found = importance.clone()
    branches = ~graph.fixed & torch.tensor([edge.bundle is None for edge in graph.edges])
    for stage in () if stages is None else set(stages[branches].tolist()):
        mine = branches & (stages == stage)
        found[mine] = importance[mine] / importance[mine].max().clamp_min(1e-30)
    return found


def narrowed(candidates: Candidates) -> Tensor | None:
    """The knapsack that drops no branch and leaves something of every bundle, as far as the budgets allow."""
    return knapsack(candidates, candidates.kept_last)


def narrow_enough(candidates: Candidates) -> bool:
    """Whether to meet the budgets by narrowing alone.

    So it is where that leaves a share of each budget to choose by importance, or where narrow layers are so cheap that
    dropping branches would save little. A branch costs few multiply-adds if it is narrow, but its time all the same.
    """
    assert candidates.kept_last is not None
    least = candidates.kept_last[None]
    return all(
        (cost := float(b.meter.evaluate(least)[0])) <= LEAST_SHARE * b.maximum
        or cost <= min(b.maximum, CHEAP_SHARE * b.meter.full)
        for b in candidates.budgets
    )


@dataclass(frozen=True)
class ChooseInherited(Choose):
    """Ranks architectures with their inherited weights; the first of them races uniform widths."""

    chooser: Chooser = field(default_factory=Worth)

    def field(self, state: SearchState, candidates: Candidates, ranked: Sequence[Architecture]) -> list[Tensor]:
        """See `Choose`."""
        assert state.inherited is not None
        uniform = self._held(candidates, uniform_widths(candidates.moves("widths")))
        state.inherited.uniform = uniform
        best = (self._held(candidates, a.live().gates()) for a in ranked[: self.racers - 1])
        return _distinct([row for row in (*best, uniform) if row is not None])

    @staticmethod
    def _held(candidates: Candidates, gates: Tensor | None) -> Tensor | None:
        """The live gates of an architecture that holds every budget by evidence, with edges dropped if need be."""
        held = None if gates is None else candidates.trimmed(candidates.graph.architecture(gates))
        return None if held is None else held.live().gates()

    def origin(self, state: SearchState, ranked: Sequence[Architecture], gates: Tensor) -> str:
        """See `Choose`; uniform widths are said as such, whoever else proposed them."""
        uniform = None if state.inherited is None else state.inherited.uniform
        return "uniform" if uniform is not None and torch.equal(gates, uniform) else "search"


def _distinct(rows: Sequence[Tensor]) -> list[Tensor]:
    """Rows of gates without repetitions, in their order."""
    return list({row.numpy().tobytes(): row for row in rows}.values())


@dataclass(frozen=True)
class RaceInherited(RunRace):
    """The race, which remembers how uniform widths did."""

    def crown(self, race: Race, state: SearchState, trainer: Trainer) -> None:
        """See `RunRace`."""
        if state.inherited is not None:
            first = dict(zip(race.contestants(0), race.losses[0], strict=True))
            state.inherited.losses["chosen"] = first[race.ranked()[0]]
            for place, gates in enumerate(race.racers):
                uniform = state.inherited.uniform
                if uniform is not None and torch.equal(gates, uniform) and math.isfinite(first[place]):
                    state.inherited.losses["uniform"] = first[place]
        super().crown(race, state, trainer)


@dataclass(frozen=True)
class TrainedRecipe(Recipe):
    """From trained weights: importance, Γ from it, a choice among candidates, a race, and a finish.

    Γ stays where importance puts it: to learn it pays for no epoch (`benchmarks/trained/gamma.py`).

    Args:
        importance_examples: Training examples of the importance pass.
        shared: A file that keeps what the importance pass found, if several searches share it.
    """

    importance_examples: int = 1024
    shared: Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.importance_examples < 1:
            raise UserError(f"importance_examples={self.importance_examples} measures nothing; give 1 or more")
        if self.warmup_epochs or self.search_epochs:
            raise UserError("the recipe trained has no epochs of warm-up or search; leave them out, or use fast")

    @property
    def keeps_initial_weights(self) -> bool:
        """See `Strategy`: racers inherit the weights that the super network holds."""
        return False

    def phases(self, train: Feed, seed: int, fixed: bool = False) -> tuple[Phase, ...]:
        """See `Strategy`."""
        finish, lr = Finish(self.finish_epochs, self.weights.rate(INHERITED_RISE)), self.weights.lr
        if fixed:
            return (finish,)
        racers = self.racers if self.races else 1
        return (
            MeasureImportance(self.importance_examples, self.shared),
            ChooseInherited(CANDIDATES, seed, racers, self.rungs, Worth()),
            RaceInherited(lr, self.rungs),
            finish,
        )


OWN_OPTIONS = tuple(f.name for f in fields(TrainedRecipe) if f.name not in {f.name for f in fields(Recipe)})
NOT_OPTIONS = ("warmup_epochs", "search_epochs", "policy_lr")
"""Of the default recipe, what this one does without."""
OPTIONS = (*(name for name in recipes.OPTIONS if name not in NOT_OPTIONS), *OWN_OPTIONS[:-1])
"""Settings that a user may write behind the name of the recipe."""


def trained(epochs: float = EPOCHS) -> TrainedRecipe:
    """The recipe for trained weights.

    Args:
        epochs: Of the result alone, its race included.

    Returns:
        The recipe.
    """
    return TrainedRecipe(
        "trained",
        warmup_epochs=0.0,
        search_epochs=0.0,
        racers=2,
        race_epochs=epochs / 32,
        finish_epochs=epochs,
        weights=Optimization(lr=0.1),
    )
