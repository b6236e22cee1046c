"""Takes a state through the phases of a strategy, from wherever it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from budgetnet.budgets.budget import Budget, set_deadline
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.archive import Archive, Evaluated
from budgetnet.strategies.phases import Choose, Finish, Phase
from budgetnet.strategies.policy import Policy
from budgetnet.strategies.recipes import Strategy
from budgetnet.strategies.start import Start
from budgetnet.strategies.state import DONE, SearchState
from budgetnet.training.trainer import Trainer

STEPS_BACK = 3
"""Finished networks that may fail their certificate before the smallest one is finished."""


@dataclass(frozen=True)
class Outcome:
    """What the phases hand over.

    Args:
        architecture: The result.
        model: The same, trained, as an ordinary module.
        seconds: Of each phase.
        archive: Architectures that were scored on the way.
        runners_up: The next best architectures, should the first fail its measurement.
    """

    architecture: Architecture
    model: fx.GraphModule
    seconds: Mapping[str, float]
    archive: Sequence[Evaluated]
    runners_up: Sequence[Architecture]


@dataclass
class Runner:
    """The phases of a run, their state and the trainer."""

    phases: Sequence[Phase]
    state: SearchState
    trainer: Trainer

    @classmethod
    def of_search(
        cls,
        strategy: Strategy,
        net: SuperNetwork,
        budgets: Sequence[Budget],
        fallback: Architecture,
        start: Start,
        trainer: Trainer,
        seed: int,
    ) -> Runner:
        """A search from its beginning.

        Args:
            strategy: How.
            net: The super network.
            budgets: The budgets.
            fallback: An architecture that meets all of them.
            start: Γ's start.
            trainer: Trains, records and saves.
            seed: What everything random follows from.

        Returns:
            The runner.
        """
        phases = strategy.phases(trainer.train, seed)
        archive = Archive(
            net, trainer.task, trainer.train, trainer.validation, budgets, strategy.choose_examples, trainer.device
        )
        policy = Policy(start.distribution(net.graph), budgets, strategy.policy(trainer.train))
        state = SearchState(net, fallback, archive, phases[0].name, start, policy)
        if strategy.keeps_initial_weights:
            state.initial = {name: value.clone() for name, value in net.state_dict().items()}
        return cls._begun(phases, state, trainer)

    @classmethod
    def of_fixed(
        cls,
        strategy: Strategy,
        net: SuperNetwork,
        budgets: Sequence[Budget],
        architecture: Architecture,
        trainer: Trainer,
        seed: int,
    ) -> Runner:
        """The training of one fixed architecture; arguments as in `of_search`."""
        phases = strategy.phases(trainer.train, seed, fixed=True)
        archive = Archive(
            net, trainer.task, trainer.train, trainer.validation, budgets, strategy.choose_examples, trainer.device
        )
        state = SearchState(net, architecture, archive, phases[0].name)
        state.single_out(architecture, trainer)
        return cls._begun(phases, state, trainer)

    @classmethod
    def _begun(cls, phases: Sequence[Phase], state: SearchState, trainer: Trainer) -> Runner:
        trainer.seconds = {phase.name: 0.0 for phase in phases}
        return cls(phases, state, trainer)

    def run(self) -> Outcome:
        """Runs the phases from where the state is to the end."""
        state, trainer = self.state, self.trainer
        names = [*(phase.name for phase in self.phases), DONE]
        while state.phase != DONE:
            number = names.index(state.phase)
            trainer.watch.phase(state.phase)
            set_deadline(state.budgets, trainer.ends(state.phase))
            state = self.phases[number].run(state, trainer)
            ended, state.phase = state.phase, names[number + 1]
            if state.fit is not None:
                state.fit.step = 0
            trainer.end_phase(ended, state)
        self.state = state
        set_deadline(state.budgets, math.inf)
        assert state.architecture is not None
        assert state.fit is not None
        assert isinstance(state.fit.module, fx.GraphModule)
        return Outcome(state.architecture, state.fit.module, trainer.seconds, state.archive.entries, state.runners_up)

    def step_back(self) -> bool:
        """Begins the finish of the next best architecture or, after a few, of the smallest; False if that was it."""
        state = self.state
        chooser = next((phase for phase in self.phases if isinstance(phase, Choose)), None)
        if chooser is None or not state.can_step_back:
            return False
        state.steps_back, state.raced, state.phase = state.steps_back + 1, 0.0, Finish.name
        chooser.take_first_that_holds(state, self.trainer, state.runners_up if state.steps_back < STEPS_BACK else [])
        return True

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint; the state of the trainer is restored last, with torch's random state."""
        self.state.load_state_dict(values, self.trainer)
        if self.state.phase not in (DONE, *(phase.name for phase in self.phases)):
            raise ValueError(f"there is no phase {self.state.phase!r}")
        self.trainer.load_state_dict(values["trainer"])
