"""The phases of a run, each a small class that takes the state, trains or chooses, and hands the state on."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from budgetnet.data.feeds import Feed
from budgetnet.data.seeds import generator_of
from budgetnet.errors import Interrupted
from budgetnet.network.graph import Architecture
from budgetnet.strategies.candidates import Candidates, Chooser, Samples, kept_last, stages_of
from budgetnet.strategies.race import Race, Rung
from budgetnet.strategies.sampling import FullStep, SampledStep, Sampling
from budgetnet.strategies.state import SearchState
from budgetnet.training.evaluation import EVIDENCE_BATCHES
from budgetnet.training.fits import Course
from budgetnet.training.schedules import Rate
from budgetnet.training.trainer import Trainer

SNAPSHOTS = 60
"""Step records of a search that carry Γ: enough to watch it move, without filling the disk."""
REFRESH_SAMPLES = 8
"""Architectures that a measured cost measures after each epoch of the search, to correct its prediction."""
STREAMS = {"warm-up": 0, "search": 100_000, "importance": 200_000, "race": 300_000, "finish": 400_000}
"""The first epoch of the batches of each phase."""
LEAST_STEPS = 1
"""A phase that a recipe asks for at all has one step at least, however few epochs it has."""


class Phase(Protocol):
    """A phase of a run."""

    @property
    def name(self) -> str:
        """By which records, checkpoints and time limits call it."""
        ...

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """Takes the state from where it is to the end of the phase.

        Args:
            state: What the phases before have come to, or a checkpoint of this one.
            trainer: Trains, records and saves.

        Returns:
            The state for the next phase.
        """
        ...


def steps_of(epochs: float, feed: Feed) -> int:
    """The number of steps of some epochs; 0 for none."""
    return max(LEAST_STEPS, round(epochs * feed.steps)) if epochs > 0 else 0


@dataclass(frozen=True)
class WarmUp:
    """Trains the weights that all architectures share, with Γ at its start.

    Args:
        epochs: How long.
        rate: The learning rate.
        sampling: How architectures are drawn.
        full: Whether the whole super network is trained instead.
    """

    epochs: float
    rate: Rate
    sampling: Sampling
    full: bool = False
    name: ClassVar[str] = "warm-up"

    def course(self, state: SearchState, trainer: Trainer) -> Course:
        """What the trainer does."""
        step = (FullStep if self.full else SampledStep)(state, self.sampling, self.name)
        steps = steps_of(self.epochs, trainer.train)
        about = {} if state.start is None else state.start.about()

        def look() -> dict[str, Any]:
            return {"entropy": _seen(state)["entropy"]}

        return Course(self.name, STREAMS[self.name], steps, self.rate, step, look=look, about=about)

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        return _train_shared(self.course(state, trainer), state, trainer)


@dataclass(frozen=True)
class Search:
    """Learns the shared weights by gradient, and Γ and the multipliers by policy gradient.

    Args:
        epochs: How long.
        rate: The learning rate of the weights.
        sampling: How architectures are drawn.
    """

    epochs: float
    rate: Rate
    sampling: Sampling
    name: ClassVar[str] = "search"

    def course(self, state: SearchState, trainer: Trainer) -> Course:
        """What the trainer does."""
        steps = steps_of(self.epochs, trainer.train)

        def snapshot(step: int, every: int) -> dict[str, Any]:
            due = step * SNAPSHOTS // steps > (step - every) * SNAPSHOTS // steps
            return _seen(state) if due else {}

        return Course(
            self.name,
            STREAMS[self.name],
            steps,
            self.rate,
            SampledStep(state, self.sampling, self.name, learns=True),
            look=lambda: self._look(state, trainer),
            snapshot=snapshot,
            about={} if state.start is None else state.start.about(),
        )

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        state = _train_shared(self.course(state, trainer), state, trainer)
        state.searching.catch_up()
        return state

    def _look(self, state: SearchState, trainer: Trainer) -> dict[str, Any]:
        """Γ, the score and costs of its mode, and how well measured costs were predicted."""
        assert state.fit is not None
        distribution, graph = state.searching.distribution, state.net.graph
        gates = graph.live(distribution.mode().gates()[None])[0]
        entry = state.archive.score(gates, self.name, state.fit.step // trainer.train.steps)
        seen: dict[str, Any] = {**state.archive.scores(entry)}
        seen |= {f"mode_cost/{name}": value for name, value in entry.costs.items()}
        for budget in state.budgets:
            if budget.meter.cost.measured:
                source = generator_of("refresh", self.sampling.seed, state.fit.step)
                errors = budget.meter.refresh(distribution.sample(REFRESH_SAMPLES, source).gates)
                seen |= {f"predictor_{name}/{budget.name}": value for name, value in errors.items()}
        return {**_seen(state), **seen}


def _train_shared(course: Course, state: SearchState, trainer: Trainer) -> SearchState:
    """Trains the super network; its optimizer is handed on to the next phase."""
    if course.steps:
        state.fit = state.fit or trainer.begin(state.net)
        trainer.fit(course, state.fit, state)
    return state


def _seen(state: SearchState) -> dict[str, Any]:
    """Γ, for the records."""
    distribution = state.searching.distribution
    probabilities = [round(p, 4) for p in distribution.probabilities.tolist()]
    return {"entropy": float(distribution.entropy().mean()), "probabilities": probabilities}


@dataclass(frozen=True)
class Choose:
    """Takes architectures that Γ proposes; the first ones race, or the first one is finished.

    Args:
        count: Architectures that are looked at.
        seed: What proposals follow from.
        racers: Candidates that race; 1 for no race.
        rungs: Epochs and survivors of each rung of the race.
        chooser: Proposes architectures.
    """

    count: int
    seed: int
    racers: int = 1
    rungs: Sequence[tuple[float, int]] = ()
    chooser: Chooser = field(default_factory=Samples)
    name: ClassVar[str] = "choose"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        clock = time.monotonic()
        trainer.record("phase", self.name, 0, {"steps": self.count}, epoch=0)
        candidates, score = self.candidates(state, trainer), _Scorer(state, trainer, self.name)
        found = self.chooser.rank(candidates, state.fallback.gates(), score, self.count)
        ranked = [state.net.graph.architecture(gates) for gates in found]
        racers = self.field(state, candidates, ranked) if self.racers > 1 else []
        if len(racers) > 1:
            origins = [self.origin(state, ranked, gates) for gates in racers]
            state.race, state.runners_up, state.fit = Race(racers, self._rungs(trainer), origins=origins), ranked, None
            if state.initial is not None:
                state.use_initial_weights()
        else:
            state.drop_initial_weights()
            self.take_first_that_holds(state, trainer, ranked, score.count)
        trainer.spend(self.name, time.monotonic() - clock)
        return state

    def field(self, state: SearchState, candidates: Candidates, ranked: Sequence[Architecture]) -> list[Tensor]:
        """Those who race: rows of gates that hold every budget by evidence."""
        return candidates.racers(ranked, self.racers)

    def origin(self, state: SearchState, ranked: Sequence[Architecture], gates: Tensor) -> str:
        """What a racer is, for the records: Γ's mode, which is proposed first, or a sample of Γ."""
        return "mode" if ranked[0].live() == state.net.graph.architecture(gates).live() else "sample"

    def _rungs(self, trainer: Trainer) -> tuple[Rung, ...]:
        return tuple((steps_of(epochs, trainer.train), survivors) for epochs, survivors in self.rungs)

    def candidates(self, state: SearchState, trainer: Trainer) -> Candidates:
        """Proposes architectures by what the state knows."""

        def evidence() -> list[Any]:
            return [inputs for inputs, _ in itertools.islice(trainer.validation.evaluation(), EVIDENCE_BATCHES)]

        return Candidates(
            state.net.graph,
            state.budgets,
            state.searching.distribution,
            lambda purpose: generator_of(purpose, self.seed),
            evidence,
            None if state.inherited is None else state.inherited.importance,
            stages_of(state.net),
            kept_last(state.net),
        )

    def take_first_that_holds(
        self, state: SearchState, trainer: Trainer, ranked: Sequence[Architecture], step: int = 0
    ) -> None:
        """Singles out the best one that holds every budget by evidence.

        The last resort is the architecture of the check, which has been measured: the certificate will say.
        """
        chosen, others = self.candidates(state, trainer).first_that_holds(ranked)
        state.single_out(chosen or state.fallback.live(), trainer)
        set_aside(state, trainer, others, step)


@dataclass
class _Scorer:
    """Validation loss of an architecture on shared weights; infinite once the time for it is over."""

    state: SearchState
    trainer: Trainer
    phase: str

    def __post_init__(self) -> None:
        self.count = 0
        self.deadline = max(self.trainer.deadline(self.phase), self.trainer.elapsed())

    def __call__(self, gates: Tensor) -> float:
        if self.count and self.trainer.processes.agree(self.trainer.elapsed() > self.deadline)[0]:
            return math.inf
        with self.trainer.watch.part("evaluation"):
            entry = self.state.archive.score(gates, self.phase, self.count // self.trainer.train.steps)
        self.count += 1
        seen = self.state.archive.scores(entry)
        self.trainer.record("candidate", self.phase, self.count, seen, epoch=0)
        if self.trainer.processes.agree(self.trainer.should_stop())[0]:
            raise Interrupted  # the checkpoint of the phase before is the one to go on from
        return entry.loss


def set_aside(state: SearchState, trainer: Trainer, others: Sequence[Architecture], step: int) -> None:
    """The choice is made; the others come next, should its measurement fail."""
    assert state.architecture is not None
    state.runners_up = [other for other in others if other != state.architecture]
    gates = state.architecture.gates()[None]
    costs = {f"cost/{b.name}": float(b.meter.evaluate(gates)[0]) for b in state.budgets}
    trainer.record("chosen", state.phase, step, costs, epoch=0 if state.phase == Choose.name else None)


@dataclass(frozen=True)
class Finish:
    """Trains the chosen architecture alone.

    Args:
        epochs: How long, the epochs of its race included.
        rate: The learning rate.
    """

    epochs: float
    rate: Rate
    name: ClassVar[str] = "finish"

    def course(self, state: SearchState, trainer: Trainer) -> Course:
        """What the trainer does."""
        steps = steps_of(self.epochs - state.raced, trainer.train)
        return Course(self.name, STREAMS[self.name], steps, self.rate, trainer.alone)

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        course = self.course(state, trainer)
        if course.steps:
            assert state.fit is not None
            trainer.fit(course, state.fit, state)
        return state
