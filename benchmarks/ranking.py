"""Does the search rank networks as training from scratch does? It cannot choose better than that.

Random sub-architectures of a budget (`benchmarks/_opponents.py` has the protocol) with their test accuracy from scratch
are scored on the shared weights at the end of the search phase: on the validation images that settle looks at, and on
all of them, with the batch-norm statistics of the super network and with ones of their own; and by Γ: the negative sum
of its logits over the edges of a network, and of what these have gained in the search. Then the networks race, all
against each other, and all of them run in the final. For comparison: the training losses of their own first epochs
from scratch. Answers are Spearman's rank correlations of the negative loss with the accuracy; opponents that are
trained already are not trained again.

    python -m benchmarks.ranking --data-root DATA [--protocol resnet] [--recipe fast] [--share 0.3] [--random 30]
        [--seed 0] [--out FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from benchmarks._common import summarise, write_result
from benchmarks._opponents import Opponents, add_protocol
from budgetnet.config import Config
from budgetnet.errors import Interrupted
from budgetnet.evaluation import evaluate, recalibrate
from budgetnet.extract import extract
from budgetnet.feasibility import check, profile
from budgetnet.graph import Architecture, Graph
from budgetnet.policy import initial_logits
from budgetnet.race import Race
from budgetnet.run import prepare
from budgetnet.search import PHASES, Loop

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
    """What Γ holds against an architecture, and what it has learned against it since its start."""
    learned, gates = loop.policy.distribution.logits.detach(), architecture.live().gates()
    return {"policy": -float(learned[gates].sum()), "policy_learned": float((start - learned)[gates].sum())}


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


def main() -> None:
    """Trains what is missing, searches, scores and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser)
    parser.add_argument("--recipe", default="fast")
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--random", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
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
        seed=given.seed,
        threads=1,
    )
    trained = opponents.random(given.share, given.random)
    loop, rows = searched(config), []
    architectures = [kept(loop.net.graph, row["kept"]) for row in trained]
    start = initial_logits(loop.recipe, loop.budgets, loop.net.graph, loop.fallback)
    for row, architecture in zip(trained, architectures, strict=True):
        losses = scores(loop, architecture) | beliefs(loop, start, architecture)
        losses |= {f"own_epoch_{epoch}": loss for epoch, loss in enumerate(row["losses"][:EPOCHS], 1)}
        rows.append({"macs": row["macs"], "test": row["test"], "losses": losses})
    if loop.recipe.races:
        for row, losses in zip(rows, raced(loop, architectures, prepare(config).net.state_dict()), strict=True):
            row["losses"] |= losses
    truth = [row["test"] for row in rows]
    correlations = {key: spearman([-row["losses"][key] for row in rows], truth) for key in rows[0]["losses"]}
    write_result(
        "ranking",
        {
            "protocol": f"{protocol}, {limit}; accuracy from scratch",
            "recipe": given.recipe,
            "seeds": [given.seed],
            "spearman": correlations,
            "bar": FLOOR,
            "passed": correlations["settle_after"] >= FLOOR,
            "from_scratch": summarise(truth),
            "architectures": rows,
        },
        variant=f"{given.protocol}_{100 * given.share:.0f}",
    )


if __name__ == "__main__":
    main()
