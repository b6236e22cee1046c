"""Does the search rank networks as training from scratch does? It cannot choose better than that.

Random sub-architectures of a budget (`benchmarks/_opponents.py` has the protocol) with their test accuracy from scratch
are scored at the end of the search phase, for several seeds of the search: on shared weights, on the validation images
that Choose sees and on all of them, with the batch-norm statistics of the super network and with ones of their own;
by Γ: the negative sum of its logits over the edges of a network, and of what these have gained in the search; and by
capacity, which needs no search at all. Then, with the first seed, the networks race, all against each other, and all of
them run in the final if there is one. For comparison: the training losses of their own first epochs from scratch.
Answers are Spearman's rank correlations of the negative loss with the accuracy; opponents that are trained already are
not trained again.

    python -m benchmarks.ranking --data-root DATA [--protocol resnet] [--recipe fast] [--share 0.3] [--random 30]
        [--seeds 0,1,2] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import numbers, pin_threads, summarise, write_result
from benchmarks._opponents import Opponents, Table, add_protocol
from budgetnet.costs import macs, params
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.config import Config
from budgetnet.runs.job import check_job, make_runner, make_trainer, prepare
from budgetnet.strategies.phases import Search, WarmUp, steps_of
from budgetnet.strategies.race import Race
from budgetnet.strategies.racing import RunRace
from budgetnet.strategies.recipes import Recipe
from budgetnet.strategies.runner import Runner
from budgetnet.training.evaluation import evaluate, recalibrate

FLOOR = 0.5
EPOCHS = 4
"""First epochs of the training from scratch that are looked at."""


def searched(config: Config) -> Runner:
    """A search, stopped where the search phase has ended."""
    job = prepare(config)
    runner = make_runner(job, check_job(job), make_trainer(job))
    runner.phases = [phase for phase in runner.phases if isinstance(phase, WarmUp | Search)]
    for phase in runner.phases:
        runner.state.phase = phase.name
        phase.run(runner.state, runner.trainer)
        assert runner.state.fit is not None
        runner.state.fit.step = 0
    return runner


def scores(runner: Runner, architecture: Architecture) -> dict[str, float]:
    """Losses on shared weights: on what Choose sees and on all validation data, before and after re-estimation."""
    trainer, model = runner.trainer, extract(runner.state.net, architecture)
    found = {}
    for when in ("before", "after"):
        if when == "after":
            recalibrate(model, trainer.task, trainer.train)
        for what, count in (("choose", runner.state.archive.examples), ("all", None)):
            found[f"{what}_{when}"], _ = evaluate(model, trainer.task, trainer.validation.evaluation(count))
    return found


def beliefs(runner: Runner, start: Tensor, architecture: Architecture) -> dict[str, float]:
    """What Γ holds against an architecture, what it has learned against it since its start, and want of capacity."""
    state = runner.state
    learned, gates = state.searching.distribution.logits.detach(), architecture.live().gates()
    return {
        "policy": -float(learned[gates].sum()),
        "policy_learned": float((start - learned)[gates].sum()),
        "capacity": -capacity(state.net, architecture),
    }


def capacity(net: SuperNetwork, architecture: Architecture) -> float:
    """How much an architecture may learn, guessed without training: log of multiply-adds times parameters."""
    return math.log(max(1.0, macs(net)(architecture))) + math.log(max(1.0, params(net)(architecture)))


def raced(config: Config, architectures: Sequence[Architecture]) -> list[dict[str, float]]:
    """The losses by which a race of all these judges them, after its first rung and after a second one of all."""
    job = prepare(config)
    recipe, runner = job.recipe, make_runner(job, check_job(job), make_trainer(job))
    assert isinstance(recipe, Recipe)
    lengths = [steps_of(epochs, job.train) for epochs, _ in recipe.rungs]
    race = Race([each.gates() for each in architectures], tuple((steps, len(architectures)) for steps in lengths))
    runner.state.phase, runner.state.race = RunRace.name, race
    RunRace(recipe.weights.lr, recipe.rungs).run(runner.state, runner.trainer)
    found = [{"race": loss} for loss in race.losses[0]]
    for place, loss in zip(race.contestants(1), race.losses[1], strict=False) if len(lengths) > 1 else ():
        found[place]["final"] = loss
    return found


def kept(graph: Graph, names: Collection[str]) -> Architecture:
    """The architecture of these edges."""
    return graph.architecture(torch.tensor([edge.name in names for edge in graph.edges]))


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: np.ndarray = (last - (counts - 1) / 2)[inverse]
    return ranks


def believed(config: Config, trained: Table) -> tuple[Runner, list[dict[str, float]]]:
    """A search, stopped at the end of its search phase, and what it then holds against each network."""
    runner = searched(config)
    assert runner.state.start is not None
    start = runner.state.start.logits
    networks = [kept(runner.state.net.graph, row["kept"]) for row in trained]
    return runner, [scores(runner, network) | beliefs(runner, start, network) for network in networks]


def correlations(losses: Sequence[Mapping[str, float]], truth: Sequence[float]) -> dict[str, float]:
    """Of every kind of loss that is known of all networks."""
    known = [key for key in losses[0] if all(key in row for row in losses)]
    return {key: spearman([-row[key] for row in losses], truth) for key in known}


def main() -> None:
    """Trains what is missing, searches, scores and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--random", type=int, default=30)
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    given = parser.parse_args()
    pin_threads()
    opponents = Opponents.given(given)
    protocol = opponents.protocol
    limit = protocol.budget(given.share)
    config = Config(
        space=protocol.space,
        data=protocol.data,
        data_root=given.data_root,
        budgets=(limit,),
        recipe=given.recipe,
        epochs=protocol.epochs,
        seed=given.seeds[0],
        threads=1,
    )
    trained = opponents.random(given.share, given.random)
    truth = [row["test"] for row in trained]
    searches = {seed: believed(replace(config, seed=seed), trained) for seed in given.seeds}
    single = [{f"own_epoch_{n}": loss for n, loss in enumerate(row["losses"][:EPOCHS], 1)} for row in trained]
    runner, _ = searches[given.seeds[0]]
    if config.make_recipe("classification").keeps_initial_weights:
        networks = [kept(runner.state.net.graph, row["kept"]) for row in trained]
        found = raced(config, networks)
        single = [own | race for own, race in zip(single, found, strict=True)]
    by_seed = [correlations(losses, truth) for _, losses in searches.values()]
    shared = {key: summarise(row[key] for row in by_seed) for key in by_seed[0]}
    write_result(
        "ranking",
        {
            "protocol": f"{protocol}, {limit}; accuracy from scratch",
            "recipe": given.recipe,
            "seeds": given.seeds,
            "spearman": shared,
            "spearman_first_seed": correlations(single, truth),
            "bar": FLOOR,
            "passed": shared["choose_after"]["mean"] >= FLOOR,
            "from_scratch": summarise(truth),
            "architectures": [
                {
                    "name": row["name"],
                    "test": row["test"],
                    "losses": {seed: losses[place] for seed, (_, losses) in searches.items()},
                    "alone": single[place],
                }
                for place, row in enumerate(trained)
            ],
        },
        variant=f"{given.protocol}_{100 * given.share:.0f}",
    )


if __name__ == "__main__":
    main()
