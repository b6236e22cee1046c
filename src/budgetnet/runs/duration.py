"""How long a run will take."""

from __future__ import annotations

import itertools

import torch

from budgetnet.network.graph import Architecture
from budgetnet.strategies.phases import Choose, Finish, RunRace, Search, WarmUp, steps_of
from budgetnet.strategies.runner import Runner
from budgetnet.training.trainer import Course, Fit

SAMPLES = 64
"""Samples of Γ among which the one closest to the budgets is timed."""
STEPS = 3
"""Timed steps of each phase; the fastest counts, since the first ones of a network take longer."""


def estimate(runner: Runner) -> float:
    """Seconds of a whole run, from a few timed steps of each phase. The runner is used up by it."""
    total, shared, state, trainer = 0.0, None, runner.state, runner.trainer
    feed = trainer.train
    for phase in runner.phases:
        if isinstance(phase, WarmUp | Search):
            shared = shared or trainer.begin(state.net)
            course = phase.course(state, trainer)
            total += course.steps * (_step(runner, course, shared) if course.steps else 0.0)
        elif isinstance(phase, Finish):
            fit = state.fit or state.single_out(_sample(runner), trainer)
            seconds = _step(runner, phase.course(state, trainer), fit)
            race = next((p for p in runner.phases if isinstance(p, RunRace)), None)
            chooser = next((p for p in runner.phases if isinstance(p, Choose)), None)
            steps = steps_of(phase.epochs, feed)
            if race is not None and chooser is not None:
                steps += _losers_steps(race, chooser.racers, feed.steps)
            total += seconds * steps
    return total


def _losers_steps(race: RunRace, racers: int, steps: int) -> int:
    """Steps of the racers that do not win; those of the winner are a part of its finish."""
    total, contestants = 0.0, racers
    for epochs, survivors in race.rungs:
        total += (contestants - 1) * epochs
        contestants = min(contestants, survivors)
    return round(total * steps)


def _step(runner: Runner, course: Course, fit: Fit) -> float:
    batches = itertools.islice(runner.trainer.train.training(0), STEPS)
    return min(runner.trainer.time_step(course, fit, batch) for batch in batches)


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
