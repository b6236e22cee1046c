"""Does the search rank networks as training from scratch does? It cannot choose better than that.

Random sub-architectures of a budget (`benchmarks/_opponents.py` has the protocol) with their test accuracy from scratch
are scored at the end of the search phase, for several seeds of the search: on shared weights, on the validation images
that settle looks at and on all of them, with the batch-norm statistics of the super network and with ones of their own;
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
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import numbers, pin_threads, summarise, write_result
from benchmarks._opponents import Opponents, Table, add_protocol
from budgetnet.budgets.feasibility import check, profile
from budgetnet.errors import Interrupted
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Graph
from budgetnet.runs.config import Config
from budgetnet.runs.execute import prepare
from budgetnet.strategies.capacity import capacity_of
from budgetnet.strategies.loop import PHASES, Loop
from budgetnet.strategies.policy import initial_logits
from budgetnet.strategies.race import Race
from budgetnet.training.evaluation import evaluate, recalibrate

FLOOR = 0.5
EPOCHS = 4
"""First epochs of the training from scratch that are looked at."""


def searched(config: Config) -> Loop:
    """The loop of a search, stopped where the search phase has ended."""
    job = prepare(config)
    fallback = check(profile(job.budgets, config.seed), config.seed)
    loop = Loop(job.net, job.task, job.train, job.validation, job.budgets, job.recipe, fallback, seed=config.seed)
    loop.should_stop = lambda: PHASES[loop.phase] == "settle"
    try:
        loop.run()
    except Interrupted:
        return loop
    raise AssertionError("a recipe without settle has nothing to rank by")


def scores(loop: Loop, architecture: Architecture) -> dict[str, float]:
    """Losses on shared weights: on what settle sees and on all validation data, before and after re-estimation."""
    model = extract(loop.net, architecture)
    found = {}
    for when in ("before", "after"):
        if when == "after":
            recalibrate(model, loop.train)
        for what, count in (("settle", loop.recipe.settle_examples), ("all", None)):
            found[f"{what}_{when}"], _ = evaluate(model, loop.task, loop.validation.evaluation(count))
    return found


def beliefs(loop: Loop, start: Tensor, architecture: Architecture) -> dict[str, float]:
    """What Γ holds against an architecture, what it has learned against it since its start, and want of capacity."""
    learned, gates = loop.policy.distribution.logits.detach(), architecture.live().gates()
    return {
        "policy": -float(learned[gates].sum()),
        "policy_learned": float((start - learned)[gates].sum()),
        "capacity": -float(capacity_of(loop.net)(gates[None])[0]),
    }


def raced(loop: Loop, architectures: Sequence[Architecture], fresh: Mapping[str, Tensor]) -> list[dict[str, float]]:
    """The losses by which a race of all these judges them, after its first round and after a final of all of them."""
    lengths = loop.total_steps("race"), loop.total_steps("final")
    race = Race([each.gates() for each in architectures], lengths, len(architectures) if loop.recipe.final else 1)
    loop.net.load_state_dict(fresh)
    loop.phase, loop.step, loop.race = PHASES.index("race"), 0, race
    loop.should_stop = lambda: PHASES[loop.phase] == "finish"
    with suppress(Interrupted):
        loop.run()
    first, final = race.losses[: len(race.racers)], race.losses[len(race.racers) :]
    found = [{"race": loss} for loss in first]
    for place, loss in zip(sorted(range(len(first)), key=first.__getitem__), final, strict=False):
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


def believed(config: Config, trained: Table) -> tuple[Loop, list[dict[str, float]]]:
    """A search, stopped at the end of its search phase, and what it then holds against each network."""
    loop = searched(config)
    start = initial_logits(loop.recipe, loop.budgets, loop.net.graph, loop.fallback)
    networks = [kept(loop.net.graph, row["kept"]) for row in trained]
    return loop, [scores(loop, network) | beliefs(loop, start, network) for network in networks]


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
    loop, _ = searches[given.seeds[0]]
    if loop.recipe.races:
        networks = [kept(loop.net.graph, row["kept"]) for row in trained]
        found = raced(loop, networks, prepare(config).net.state_dict())
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
            "passed": shared["settle_after"]["mean"] >= FLOOR,
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
