"""The paper's strategy: what Veniat and Denoyer (CVPR 2018) write, as phases and settings of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import nn

from budgetnet.budgets.budget import Budget
from budgetnet.data.feeds import Feed
from budgetnet.network.distribution import INITIAL_LOGIT
from budgetnet.network.graph import Architecture, Graph
from budgetnet.strategies.phases import Finish, Phase, Search, WarmUp
from budgetnet.strategies.policy import PolicySettings
from budgetnet.strategies.sampling import PER_EXAMPLE, Sampling
from budgetnet.strategies.start import Start, given_start
from budgetnet.strategies.state import SearchState
from budgetnet.training.optimization import BOUNDED, within
from budgetnet.training.schedules import part_of, step_decay
from budgetnet.training.trainer import Trainer

EPOCHS = {"classification": 300, "segmentation": 200}
"""All epochs, by task (section 5 of the paper)."""
WARMUP_EPOCHS = 50
"""How many of them train the whole super network before Γ learns."""
MILESTONES = {"classification": (150 / 300, 225 / 300), "segmentation": (130 / 200,)}
"""The progress of all epochs at which the learning rate is divided by ten."""


@dataclass(frozen=True)
class TakeMode:
    """Takes the edges with p > 0.5, with the weights that they have in the super network."""

    name: ClassVar[str] = "choose"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        if state.architecture is None:
            state.single_out(state.searching.distribution.mode().live(), trainer)
        return state


@dataclass(frozen=True)
class PaperRecipe:
    """Fixed λ, batch-mean baseline, one architecture per example, p > 0.5, no race and no finish.

    Args:
        name: As the user wrote it.
        warmup_epochs: Epochs of the whole super network.
        search_epochs: Epochs in which Γ learns.
        milestones: The progress at which the learning rate is divided by ten.
        finish_epochs: Epochs of a fixed architecture; 0 in a search.
        batch_size: Examples in a batch.
        groups: Architectures that share a batch.
        penalty: λ.
        lr: The learning rate of the weights.
        momentum: Of SGD.
        weight_decay: Of SGD.
        policy_lr: Γ's learning rate, on the gradient summed over the batch (the authors' code; the text has one
            schedule for all).
    """

    name: str
    warmup_epochs: float
    search_epochs: float
    milestones: tuple[float, ...]
    finish_epochs: float = 0.0
    batch_size: int = 64
    groups: int = PER_EXAMPLE
    penalty: float = 1.0
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 1e-4
    policy_lr: float = 1e-3
    clip: ClassVar[float] = 0.0
    adaptive: ClassVar[bool] = False
    steps_back: ClassVar[bool] = False
    keeps_initial_weights: ClassVar[bool] = False
    choose_examples: ClassVar[int] = 1024

    def __post_init__(self) -> None:
        weights = {name: BOUNDED[name] for name in ("lr", "momentum", "weight_decay")}
        within(self, weights | dict.fromkeys(("warmup_epochs", "search_epochs", "policy_lr"), (0.0, math.inf)))

    @property
    def epochs(self) -> float:
        """See `Strategy`."""
        return self.warmup_epochs + self.search_epochs + self.finish_epochs

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """See `Strategy`."""
        return replace(self, **changes)

    def alone(self) -> Self:
        """See `Strategy`: the schedule is that of all epochs."""
        return replace(self, warmup_epochs=0, search_epochs=0, finish_epochs=self.epochs)

    def make_optimizer(self, module: nn.Module) -> torch.optim.Optimizer:
        """See `Strategy`."""
        return torch.optim.SGD(
            module.parameters(), self.lr, momentum=self.momentum, weight_decay=self.weight_decay, foreach=True
        )

    def start(self, budgets: Sequence[Budget], graph: Graph, anchor: Architecture) -> Start:
        """See `Strategy`: Γ = 3 everywhere."""
        return given_start(INITIAL_LOGIT, budgets, graph)

    def policy(self, train: Feed) -> PolicySettings:
        """See `Strategy`."""
        return PolicySettings(self.policy_lr, self.penalty, adaptive=False, baseline="batch-mean", standardise=False)

    def phases(self, train: Feed, seed: int, fixed: bool = False) -> tuple[Phase, ...]:
        """See `Strategy`: one schedule runs over everything."""

        def decay(progress: float) -> float:
            return step_decay(self.lr, progress, self.milestones)

        if fixed:
            return (Finish(self.finish_epochs, decay),)
        sampling = Sampling(seed, self.groups, stratified=False, connected=False)
        warmup, search = self.warmup_epochs, self.search_epochs
        return (
            WarmUp(warmup, part_of(decay, 0.0, warmup, warmup + search), sampling, full=True),
            Search(search, part_of(decay, warmup, search, warmup + search), sampling),
            TakeMode(),
        )


OPTIONS = tuple(
    f.name
    for f in fields(PaperRecipe)
    if f.name not in ("name", "milestones", "finish_epochs", "batch_size", "groups", "penalty")
)
"""Settings that a user may write behind the name of the recipe."""


def paper(epochs: float | None = None, task: str = "classification") -> PaperRecipe:
    """The paper's recipe.

    Args:
        epochs: All of them; the paper's number if None.
        task: `classification` or `segmentation`.

    Returns:
        The recipe, with warm-up and milestones in proportion.
    """
    kind = task if task in EPOCHS else "segmentation"
    total = float(EPOCHS[kind] if epochs is None else epochs)
    warmup = WARMUP_EPOCHS / EPOCHS[kind]
    return PaperRecipe("paper", total * warmup, total * (1 - warmup), MILESTONES[kind])
