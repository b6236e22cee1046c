"""Γ's part in a search from trained weights: the same run with and without learning it, and by which credit.

All take Γ's mode within the budget and train it for the epochs that are left: `start` takes it where importance per
cost has put it; `score` learns Γ by the score function, together with the weights, as a search from fresh weights does;
`fisher` learns it by a credit per edge, ½ E[(∂ℓ/∂gate)²] on sampled networks. `narrowed` is what the recipe races
besides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from benchmarks._common import summarise
from benchmarks.quality import difference
from benchmarks.trained.ledger import Entry
from benchmarks.trained.study import NONE, Study
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data.feeds import Batch, Feed
from budgetnet.data.nested import rows
from budgetnet.data.seeds import generator_of
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.importance import Place, gated, unit_gradients
from budgetnet.strategies.phases import Choose, Finish, Phase, Search, steps_of
from budgetnet.strategies.policy import PolicySettings, default_rate
from budgetnet.strategies.recipes import INHERITED_RISE
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.sampling import Sampling
from budgetnet.strategies.state import SearchState
from budgetnet.strategies.trained import MeasureImportance, TrainedRecipe, narrowed, trained
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

PART = "gamma"
LEARNERS = ("start", "score", "fisher", "narrowed")
EPOCHS = 1.0
"""Of the training that Γ's learning takes."""
SEARCH_LR = 0.05
"""The learning rate of the weights while Γ learns, as a share of the finish's."""
DECIDES = 64
"""Times the rate of a search from fresh weights, at which Γ decides within an epoch."""
RATE, DUAL, MEMORY = 0.15, 0.1, 0.9
"""By the Fisher credit: Γ's step for a mean credit, that of log λ, and how much of the credits before is kept."""
SAMPLES = 256
"""Of Γ, for what it costs in the end."""


@dataclass(frozen=True)
class LearnByCredit:
    """Γ by a credit per edge: samples mask the whole network, whose gates say what each edge is worth in them."""

    epochs: float
    seed: int
    groups: int
    name: ClassVar[str] = "search"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`: the weights stay as they are, and batch norm sees the batch."""
        clock = time.monotonic()
        steps, net, (budget,) = steps_of(self.epochs, trainer.train), state.net, state.budgets
        logits, costs = state.searching.distribution.logits, _costs(state)
        buffers = {name: value.clone() for name, value in net.named_buffers()}
        credit, price = torch.zeros(len(net.graph.edges), dtype=torch.float64), 1.0
        net.train()
        for number, batch in zip(range(steps), trainer.train.training(0), strict=False):
            drawn = state.searching.distribution.sample(
                self.groups, generator_of(self.name, self.seed, number), stratified=True, connected=True
            )
            seen = credits(net, trainer.task, batch, drawn.gates)
            credit = seen if not number else MEMORY * credit + (1 - MEMORY) * seen
            price *= 1 + DUAL * float(budget.meter.evaluate(drawn.gates).mean() / budget.maximum - 1)
            worth = credit / credit[~net.graph.fixed].mean() - price * costs
            with torch.no_grad():
                logits.add_(RATE * worth.float())
        for name, value in net.named_buffers():
            value.copy_(buffers[name])
        trainer.spend(self.name, time.monotonic() - clock)
        return state


def _costs(state: SearchState) -> Tensor:
    """What each edge adds to the cost, over the mean of all that may be dropped."""
    (budget,), graph = state.budgets, state.net.graph
    without = ~torch.eye(len(graph.edges), dtype=torch.bool)
    added = (budget.meter.full - budget.meter.evaluate(without)).clamp_min(0)
    return added / added[~graph.fixed].mean()


def credits(net: SuperNetwork, task: Task, batch: Batch, gates: Tensor) -> Tensor:
    """½ E[(∂ℓ/∂gate)²] of every edge, on networks that are masked by these gates, each on its share of the batch."""
    inputs, targets = batch
    count = rows(inputs)
    owner = torch.arange(count) * len(gates) // count
    with gated(net, count, lambda place: _mask(net, place, gates[owner])) as made, torch.enable_grad():
        loss = task.group_losses(task.outputs(net, inputs), targets, 1).mean()
        places = list(made)
        found = torch.autograd.grad(loss * count, [made[place] for place in places])
    credit = torch.zeros(len(net.graph.edges), dtype=torch.float64)
    for place, gradient in zip(places, found, strict=True):
        operation, module = net.graph.operations[place[0]], net.edge_modules[place[0]]
        if operation.bundle:
            assert isinstance(module, Region)
            gradient = unit_gradients(gradient, torch.arange(gradient.shape[1]), module.axes[place[1]])
        credit[list(operation.axes[place[1]])] = 0.5 * gradient.double().square().mean(0)
    return credit


def _mask(net: SuperNetwork, place: Place, gates: Tensor) -> Tensor:
    """The gates of the blocks of a place (examples × blocks), from those of its units."""
    operation, module = net.graph.operations[place[0]], net.edge_modules[place[0]]
    units = gates[:, list(operation.axes[place[1]])].float()
    if not operation.bundle:
        return units
    assert isinstance(module, Region)
    return units.repeat_interleave(torch.tensor(module.axes[place[1]].sizes), 1)


@dataclass(frozen=True)
class TakeOne(Choose):
    """Takes Γ's mode, or the narrowed network, within the budget."""

    learner: str = "start"

    def run(self, state: SearchState, trainer: Trainer) -> SearchState:
        """See `Phase`."""
        candidates = self.candidates(state, trainer)
        moves = candidates.moves()
        gates = narrowed(candidates)
        if self.learner != "narrowed":
            gates = moves.shrink(state.searching.distribution.mode().gates())
            gates = None if gates is None else moves.fill(gates)
        assert gates is not None
        state.single_out(state.net.graph.architecture(gates), trainer)
        return state


@dataclass(frozen=True)
class GammaRecipe(TrainedRecipe):
    """The recipe for trained weights, with a way to learn Γ and without a race."""

    learner: str = "start"

    def policy(self, train: Feed) -> PolicySettings:
        """See `Strategy`."""
        return PolicySettings(DECIDES * default_rate(steps_of(EPOCHS, train)), self.penalty)

    def phases(self, train: Feed, seed: int, fixed: bool = False) -> tuple[Phase, ...]:
        """See `Strategy`."""
        learn: Mapping[str, Phase] = {
            "score": Search(EPOCHS, lambda progress: SEARCH_LR * self.weights.lr, Sampling(seed, self.groups)),
            "fisher": LearnByCredit(EPOCHS, seed, self.groups),
        }
        epochs = self.finish_epochs - (EPOCHS if self.learner in learn else 0.0)
        return (
            MeasureImportance(self.importance_examples),
            *((learn[self.learner],) if self.learner in learn else ()),
            TakeOne(0, seed, learner=self.learner),
            Finish(epochs, self.weights.rate(INHERITED_RISE)),
        )


def run(study: Study, shares: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """All runs that the ledger does not have, seed by seed."""
    for seed in seeds:
        for share in shares:
            for learner in contestants:
                one(study, share, seed, learner)


def compared(study: Study) -> list[dict[str, Any]]:
    """A row for each limit and learner: accuracy in percent, how sure Γ was, what its samples cost, and the start's."""
    found = study.entries(part=PART)
    table = []
    for limit, learner in dict.fromkeys((entry["limit"], entry["contestant"]) for entry in found):
        mine, start = (
            {entry["seed"]: entry for entry in found if (entry["limit"], entry["contestant"]) == (limit, name)}
            for name in (learner, LEARNERS[0])
        )
        seeds = sorted(mine.keys() & start.keys())
        points = difference([mine[s]["test"] for s in seeds], [start[s]["test"] for s in seeds], paired=True)
        numbers = {key: summarise(mine[s][key] for s in seeds) for key in ("entropy", "sample_cost")}
        test = summarise(100 * mine[s]["test"] for s in seeds)
        table.append({"limit": limit, "learner": learner, "test": test, "minus_start": points, **numbers})
    return table


def one(study: Study, share: float, seed: int, learner: str) -> Entry:
    """One way to learn Γ: the network that it comes to, and how sure Γ is of it."""
    known = study.known(part=PART, limit=share, seed=seed, contestant=learner, teacher=NONE, gamma_epochs=EPOCHS)
    return study.ledger.run(known, lambda: _make(study, share, seed, learner))


def _make(study: Study, share: float, seed: int, learner: str) -> dict[str, Any]:
    usual = trained(study.protocol.after)
    recipe = GammaRecipe(**{**vars(usual), "batch_size": study.batch, "learner": learner})
    net = study.space(study.full(seed))
    budgets = parse_all([f"macs<={100 * share:g}%"], net)
    fallback = check(profile(budgets, seed), seed)
    trainer = Trainer(Task(), study.feed("train", seed), study.feed("validation", seed), recipe.make_optimizer)
    start = recipe.start(budgets, net.graph, fallback)
    runner = Runner.of_search(recipe, net, budgets, fallback, start, trainer, seed)
    outcome = runner.run()
    gamma = runner.state.searching.distribution
    drawn = gamma.sample(SAMPLES, torch.Generator().manual_seed(0), connected=True).gates
    return {
        **study.judged(outcome.model, seed),
        "entropy": float(gamma.entropy()[~net.graph.fixed].mean()),
        "sample_cost": float(budgets[0].meter.evaluate(drawn).mean() / budgets[0].maximum),
        "kept": [edge.name for edge in outcome.architecture],
        "phases": {name: round(seconds, 1) for name, seconds in outcome.seconds.items()},
    }
