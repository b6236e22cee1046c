"""Is one start of Γ better than another? Networks drawn from each, made to use up the budget, trained from scratch.

What a search begins with decides which networks its shared weights are trained for, and between which it can choose.
The protocols are those of `benchmarks/_opponents.py`, with fewer epochs. Finished runs are not run again.

    python -m benchmarks.starts --data-root DATA [--protocol neural] [--budget "params<=30%"] [--epochs 4] [--count 4]
        [--recipes fast:lean=0 fast:lean=0.5] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import re

import torch

from benchmarks._common import summarise, write_result
from benchmarks._opponents import PROTOCOLS, Opponents, add_protocol
from budgetnet.budget import parse_all
from budgetnet.checkpoint import write_atomically
from budgetnet.costs import macs, params
from budgetnet.feasibility import check, profile
from budgetnet.graph import Architecture
from budgetnet.policy import initial_logits, marginal_costs
from budgetnet.recipes import choose
from budgetnet.sampling import EdgeDistribution
from budgetnet.settle import Settler
from budgetnet.supernet import SuperNetwork


def drawn(net: SuperNetwork, budget: str, recipe: str, count: int, seed: int) -> list[Architecture]:
    """Architectures of Γ's start that settle would look at: shrunk to the budget, then filled up."""
    budgets = parse_all([budget], net)
    generator, distribution = torch.Generator().manual_seed(seed), EdgeDistribution(net.graph)
    with torch.no_grad():
        distribution.logits.copy_(
            initial_logits(choose(recipe, None, "classification"), budgets, net, check(profile(budgets, 0), 0))
        )
    logits, weights = distribution.logits.detach(), marginal_costs(budgets, net.graph).tolist()
    settler, found = Settler(net.graph, budgets, logits, weights, generator), list[Architecture]()
    while len(found) < count:
        gates = settler.shrink(distribution.sample(1, generator, connected=True).gates[0])
        if gates is not None and gates.any():
            found.append(net.graph.architecture(settler.fill(gates)))
    return found


def main() -> None:
    """Draws, trains and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_protocol(parser)
    parser.set_defaults(protocol="neural")
    parser.add_argument("--budget", default="params<=30%")
    parser.add_argument("--epochs", type=float, default=4)
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--recipes", nargs="+", default=["fast:lean=0", "fast:lean=0.5"])
    given = parser.parse_args()
    trained = Opponents.given(given)
    net, found = PROTOCOLS[given.protocol].build(), {}
    for recipe in given.recipes:
        name, runs = re.sub("[^A-Za-z0-9.]+", "-", f"start-{recipe}-{given.budget}"), []
        architectures = drawn(net, given.budget, recipe, given.count, seed=0)
        for i, architecture in enumerate(architectures):
            path = trained.out / f"{name}-{i}.json"
            write_atomically(path, (architecture.to_json() + "\n").encode())
            runs.append({"architectures": [str(path)], "seeds": [i]})
        table = trained.sweep(name, runs, epochs=given.epochs)
        found[recipe] = {
            "validation": summarise(100 * row["validation"] for row in table),
            "macs": summarise(macs(net)(architecture) for architecture in architectures),
            "params": summarise(params(net)(architecture) for architecture in architectures),
            "table": table,
        }
    protocol = f"{trained.protocol}, but {given.epochs:g}; {given.budget}; accuracies in percent"
    write_result("starts", {"protocol": protocol, "seeds": list(range(given.count)), "starts": found})


if __name__ == "__main__":
    main()
