"""The default strategy: its settings as one frozen value, and the phases that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

import torch
from torch import nn

from budgetnet.budgets.budget import Budget
from budgetnet.data.feeds import Feed
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Graph
from budgetnet.strategies.candidates import DRAWN_PER_RACER
from budgetnet.strategies.phases import Choose, Finish, Phase, Search, WarmUp, steps_of
from budgetnet.strategies.policy import PolicySettings, default_rate
from budgetnet.strategies.racing import RunRace
from budgetnet.strategies.sampling import Sampling
from budgetnet.strategies.start import Start, budgeted_start
from budgetnet.training.optimization import Optimization, within
from budgetnet.training.schedules import part_of

RISE = 0.2
"""The share of a cycle in which the learning rate rises, from fresh weights."""
INHERITED_RISE = 0.05
"""The same where the weights are inherited and need no gentle beginning."""
EPOCHS = 16.0
"""Of the result alone, by default."""
TIME_SHARES = {"warm-up": 0.02, "search": 0.12, "choose": 0.15, "race": 0.38, "finish": 0.92}
"""The share of a time limit by which each phase ends. The rest is for the final evaluation and export."""
BOUNDED = {
    **dict.fromkeys(("warmup_epochs", "search_epochs", "race_epochs", "final_epochs"), (0.0, math.inf)),
    **dict.fromkeys(("policy_lr",), (0.0, math.inf)),
    **dict.fromkeys(("choose_examples", "racers", "finalists"), (1.0, math.inf)),
}
"""The least and the most that a number of a recipe may be; it must be finite."""


class Strategy(Protocol):
    """How a network is found and trained: settings, and the phases that follow from them."""

    @property
    def name(self) -> str:
        """As the user wrote it."""
        ...

    @property
    def batch_size(self) -> int:
        """Examples in a training batch."""
        ...

    @property
    def groups(self) -> int:
        """Architectures that share a batch; 0 for one per example."""
        ...

    @property
    def penalty(self) -> float:
        """λ at the beginning."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether λ follows the observed violation."""
        ...

    @property
    def clip(self) -> float:
        """The largest norm of a gradient; 0 for no limit."""
        ...

    @property
    def epochs(self) -> float:
        """Of all phases together."""
        ...

    @property
    def finish_epochs(self) -> float:
        """Epochs that an architecture is trained alone for, its race included."""
        ...

    @property
    def steps_back(self) -> bool:
        """Whether another architecture is finished if a measured budget does not hold."""
        ...

    @property
    def keeps_initial_weights(self) -> bool:
        """Whether candidates will race from the initial weights."""
        ...

    @property
    def choose_examples(self) -> int:
        """Validation examples that an architecture is scored on."""
        ...

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """This strategy with other settings."""
        ...

    def alone(self) -> Self:
        """This strategy for one fixed architecture: all its epochs are finish."""
        ...

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a module."""
        ...

    def start(self, budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> Start:
        """Γ's start."""
        ...

    def policy(self, train: Feed) -> PolicySettings:
        """How Γ learns."""
        ...

    def phases(self, train: Feed, seed: int, fixed: bool = False) -> tuple[Phase, ...]:
        """The phases of a run, in their order."""
        ...


@dataclass(frozen=True)
class Recipe:
    """Warm-up, policy gradient, a race of what Γ proposes, and a long training of the winner.

    Args:
        name: As the user wrote it.
        warmup_epochs: Epochs of shared weights before Γ learns.
        search_epochs: Epochs of shared weights and Γ together.
        finish_epochs: Epochs of the result alone, those of its race included.
        batch_size: Examples in a batch.
        groups: Architectures that share a batch.
        penalty: λ at the beginning; it follows the observed violation.
        weights: How weights are trained.
        policy_lr: Γ's learning rate; None follows the length of the search, so that Γ comes equally far.
        choose_examples: Validation examples that an architecture is scored on with shared weights.
        racers: Architectures that race: Γ's mode and samples of Γ; 1 to take the mode without a race.
        race_epochs: Epochs of each racer in the first rung.
        finalists: How many of them, if more than one, go on to the second rung.
        final_epochs: Epochs of each finalist in the second rung.
    """

    name: str
    warmup_epochs: float
    search_epochs: float
    finish_epochs: float
    batch_size: int = 128
    groups: int = 8
    penalty: float = 1.0
    weights: Optimization = field(default_factory=Optimization)
    policy_lr: float | None = None
    choose_examples: int = 1024
    racers: int = 1
    race_epochs: float = 0.0
    finalists: int = 1
    final_epochs: float = 0.0

    def __post_init__(self) -> None:
        within(self, BOUNDED)
        if self.races and self.winner_epochs >= self.finish_epochs:
            raise UserError(
                f"a race of {self.winner_epochs:g} epochs leaves nothing of the {self.finish_epochs:g} for the finish, "
                "of which it is a part; give fewer race_epochs or final_epochs, or racers=1"
            )

    @property
    def races(self) -> bool:
        """Whether candidates compete before one of them is finished."""
        return self.racers > 1 and self.race_epochs > 0

    @property
    def rungs(self) -> tuple[tuple[float, int], ...]:
        """Epochs and survivors of each rung of the race."""
        if not self.races:
            return ()
        final = self.finalists > 1 and self.final_epochs > 0
        return ((self.race_epochs, self.finalists), (self.final_epochs, 1)) if final else ((self.race_epochs, 1),)

    @property
    def winner_epochs(self) -> float:
        """Epochs of the winner's race, which count as a part of its finish."""
        return sum(epochs for epochs, _ in self.rungs)

    @property
    def losers_epochs(self) -> float:
        """Epochs of the racers that did not win."""
        total, contestants = 0.0, self.racers
        for epochs, survivors in self.rungs:
            total += (contestants - 1) * epochs
            contestants = min(contestants, survivors)
        return total

    @property
    def epochs(self) -> float:
        """See `Strategy`."""
        return self.warmup_epochs + self.search_epochs + self.losers_epochs + self.finish_epochs

    @property
    def clip(self) -> float:
        """See `Strategy`."""
        return self.weights.clip

    @property
    def adaptive(self) -> bool:
        """See `Strategy`."""
        return True

    @property
    def steps_back(self) -> bool:
        """See `Strategy`."""
        return True

    @property
    def keeps_initial_weights(self) -> bool:
        """See `Strategy`."""
        return self.races

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """See `Strategy`: settings of `weights` by their own names."""
        own = {name: value for name, value in changes.items() if name in WEIGHTS}
        others = {name: value for name, value in changes.items() if name not in WEIGHTS}
        return replace(self, weights=replace(self.weights, **own), **others)

    def alone(self) -> Self:
        """See `Strategy`."""
        return replace(self, warmup_epochs=0, search_epochs=0, racers=1)

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """See `Strategy`."""
        return self.weights.make(module)

    def start(self, budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> Start:
        """See `Strategy`."""
        return budgeted_start(budgets, graph, anchor)

    def policy(self, train: Feed) -> PolicySettings:
        """See `Strategy`."""
        rate = default_rate(steps_of(self.search_epochs, train)) if self.policy_lr is None else self.policy_lr
        return PolicySettings(rate, self.penalty)

    def phases(self, train: Feed, seed: int, fixed: bool = False) -> tuple[Phase, ...]:
        """See `Strategy`: one learning-rate cycle for warm-up and search together, and one for the finish."""
        finish = Finish(self.finish_epochs, self.weights.rate(RISE if fixed else INHERITED_RISE))
        if fixed:
            return (finish,)
        sampling, cycle = Sampling(seed, self.groups), self.weights.rate(RISE)
        warmup, search = self.warmup_epochs, self.search_epochs
        racers = self.racers if self.races else 1
        return (
            WarmUp(warmup, part_of(cycle, 0.0, warmup, warmup + search), sampling),
            Search(search, part_of(cycle, warmup, search, warmup + search), sampling),
            Choose(DRAWN_PER_RACER * racers, seed, racers, self.rungs),
            RunRace(self.weights.lr, self.rungs),
            finish,
        )


WEIGHTS = tuple(f.name for f in fields(Optimization))
"""Settings of `Recipe.weights`."""
NOT_OPTIONS = ("name", "finish_epochs", "batch_size", "groups", "penalty", "weights")
"""Fields of a recipe that have a setting of their own."""
OPTIONS = (*(f.name for f in fields(Recipe) if f.name not in NOT_OPTIONS), *WEIGHTS)
"""Settings that a user may write behind the name of the recipe."""


def fast(epochs: float = EPOCHS) -> Recipe:
    """The default recipe.

    Args:
        epochs: Of the result alone, its race included. What is spent on finding it is in proportion up to the default
            number of epochs, and does not grow beyond it.

    Returns:
        The recipe.
    """
    unit = min(epochs, EPOCHS) / EPOCHS
    return Recipe(
        "fast",
        warmup_epochs=0.25 * unit,
        search_epochs=1.25 * unit,
        racers=4,
        race_epochs=unit,
        finalists=2,
        final_epochs=2 * unit,
        finish_epochs=epochs,
    )
