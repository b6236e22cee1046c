"""How long a run will take."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import Any

import torch

from budgetnet.data.feeds import Feed
from budgetnet.data.nested import rows
from budgetnet.network.graph import Architecture
from budgetnet.strategies.candidates import Samples
from budgetnet.strategies.importance import measure
from budgetnet.strategies.phases import Choose, Finish, Search, WarmUp, steps_of
from budgetnet.strategies.racing import RunRace
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.trained import MeasureImportance
from budgetnet.training.evaluation import evaluate
from budgetnet.training.fits import Course, Fit
from budgetnet.training.trainer import LOOK_EXAMPLES

SAMPLES = 64
"""Samples of Γ among which the one closest to the budgets is timed."""
STEPS, LONGEST = 8, 10.0
"""Timed steps of each phase at most, and the seconds after which two have to do."""
CLOSING = 5.0
"""Seconds for the files of a run, its certificate and its report. Runs of `resnet-fabric:width=3,channels=8` with one
thread of a server's CPU wrote for 4.0 to 4.9 s, of which the report took 3.8 s; they hardly depend on the network."""
CERTIFYING = 4.0
"""How many measurements of a candidate the certificate of a measured cost is worth: of a latency it took 2.1 s and a
candidate 0.6 s, and a second runtime may be measured beside it."""


def estimate(runner: Runner, test: Feed | None = None) -> float:
    """Seconds of a whole run after its check, from timed steps and evaluations of each phase.

    Args:
        runner: A run at its beginning; it is used up.
        test: The test data that the run will look at.

    Returns:
        The seconds of all phases, of the measurements and of the closing evaluation and files.
    """
    state, trainer = runner.state, runner.trainer
    sample = _sample(runner) if state.policy is not None else state.fallback
    measurement = _measurement(runner, sample)
    total = CLOSING + CERTIFYING * measurement
    total += sum(_phase(runner, phase, sample, measurement) for phase in runner.phases)
    fit = state.fit if state.policy is None and state.fit is not None else state.single_out(sample, trainer)
    for feed in (trainer.validation, test):
        if feed is not None:
            total += _evaluation(runner, fit, feed) * _examples(feed)
    return total


def _phase(runner: Runner, phase: Any, sample: Architecture, measurement: float) -> float:
    """Seconds of one phase."""
    state, trainer = runner.state, runner.trainer
    feed = trainer.train
    if isinstance(phase, WarmUp | Search):
        if not phase.epochs:
            return 0.0
        state.fit = state.fit if state.fit is not None and state.fit.module is state.net else trainer.begin(state.net)
        course = phase.course(state, trainer)
        looks = math.ceil(course.steps / feed.steps) * (_seconds(course.look) if course.look else 0.0)
        first, each = _steps(runner, course, state.fit)
        return first + (course.steps - 1) * each + looks
    if isinstance(phase, MeasureImportance):
        batch = next(iter(feed.training(0)))
        batches = min(feed.steps, math.ceil(phase.examples / rows(batch[0])))
        return batches * _seconds(lambda: measure(state.net, trainer.task, [batch]))
    if isinstance(phase, Choose):
        scored = 0 if isinstance(phase.chooser, Samples) else phase.count
        score = _seconds(lambda: state.archive.score(sample.live().gates(), phase.name, 0)) if scored else 0.0
        return scored * score + phase.racers * measurement
    if isinstance(phase, Finish):
        return _alone(runner, phase, sample)
    return 0.0


def _alone(runner: Runner, phase: Finish, sample: Architecture) -> float:
    """Seconds of the finish and of the race before it, whose winner's epochs belong to the finish."""
    state, trainer = runner.state, runner.trainer
    feed = trainer.train
    if state.policy is None and state.fit is not None:
        fit, begun = state.fit, 0.0
    else:
        clock = time.monotonic()
        fit = state.single_out(sample, trainer)
        begun = time.monotonic() - clock
    race = next((p for p in runner.phases if isinstance(p, RunRace)), None)
    chooser = next((p for p in runner.phases if isinstance(p, Choose)), None)
    turns = _turns(race, chooser.racers) if race is not None and chooser is not None else []
    own = steps_of(phase.epochs, feed)
    lost = round(sum((count - 1) * epochs for count, epochs in turns) * feed.steps)
    first, each = _steps(runner, phase.course(state, trainer), fit)
    look = _evaluation(runner, fit, trainer.validation) * min(LOOK_EXAMPLES, _examples(trainer.validation))
    starts = sum(count for count, _ in turns) * (begun + max(first - each, 0.0) + look)
    return (own + lost) * each + math.ceil(own / feed.steps) * look + starts


def _turns(race: RunRace, racers: int) -> list[tuple[int, float]]:
    """How many contestants each rung has, and for how many epochs it trains each of them."""
    found: list[tuple[int, float]] = []
    for epochs, survivors in race.rungs:
        if racers > 1:
            found.append((racers, epochs))
        racers = min(racers, survivors)
    return found


def _steps(runner: Runner, course: Course, fit: Fit) -> tuple[float, float]:
    """Seconds of the first step of a network, which takes longer, and of each after it, their batches included.

    It is their mean and not their median: a run is as slow as the machine is, its interruptions included.
    """
    seconds: list[float] = []
    batches = iter(itertools.islice(runner.trainer.train.training(0), STEPS + 1))
    begun = time.monotonic()
    while len(seconds) < 3 or time.monotonic() - begun < LONGEST:
        clock = time.monotonic()
        batch = next(batches, None)
        if batch is None:
            break
        waited = time.monotonic() - clock
        seconds.append(waited + runner.trainer.time_step(course, fit, batch))
    return seconds[0], fmean(seconds[1:] or seconds)


def _evaluation(runner: Runner, fit: Fit, feed: Feed) -> float:
    """Seconds of the evaluation of one example."""
    trainer, batch = runner.trainer, next(iter(feed.evaluation(LOOK_EXAMPLES)))
    return _seconds(lambda: evaluate(fit.module, trainer.task, iter([batch]), trainer.device)) / rows(batch[0])


def _examples(feed: Feed) -> int:
    """How many examples there are, up to a part of a batch."""
    return feed.steps * rows(next(iter(feed.training(0)))[0])


def _measurement(runner: Runner, architecture: Architecture) -> float:
    """Seconds of measuring an architecture against the budgets; exact costs take none, nor does one that is known."""
    measured = [budget.meter for budget in runner.state.budgets if not budget.meter.cost.exact]
    return sum(_seconds(partial(meter.evidence, architecture)) for meter in measured)


def _seconds(work: Callable[[], object]) -> float:
    clock = time.monotonic()
    work()
    return time.monotonic() - clock


def _sample(runner: Runner) -> Architecture:
    """A connected sample of Γ, near the budget."""
    state = runner.state
    gates = state.searching.distribution.sample(SAMPLES, torch.Generator().manual_seed(0)).gates
    connected = gates[state.net.graph.live(gates).any(1)]
    if not len(connected):
        return state.fallback
    shares = [budget.meter.evaluate(connected) / budget.maximum for budget in state.budgets]
    used = torch.stack(shares).max(0).values if shares else torch.ones(len(connected))
    return state.net.graph.architecture(connected[int((used - 1).abs().argmin())])
