"""Do sampling, feasibility, Γ's start and local search stay fast in a super network of 1,000 edges?

Converted ResNets of 8 channels on 16×16 images, 24 and 99 blocks: about 250 and 1,000 edges. Each question is asked
under one budget, half of the full network's cost (peak memory: 90 %): 64 samples of Γ; the profile of the space; Γ's
start; one shrink from the full network and the fill after it, with random preferences. Seconds are those that the
process computed, so that a busy machine does not spoil them, of costs that have just been made and remember nothing.

    python -m benchmarks.many_edges [--repeats 3]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import torch

from benchmarks._common import Answer, answer, arguments, pin_threads, summarise, write_answers
from benchmarks._resnet import HandResNet
from budgetnet import from_model
from budgetnet.budgets.budget import Budget, parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.moves import Moves
from budgetnet.strategies.start import budgeted_start, marginal_costs

BLOCKS = (8, 33)
"""For each of three widths."""
SAMPLES = 64
BUDGETS = {"macs": "macs<=50%", "steps(2)": "steps(2)<=50%", "peak_memory": "peak_memory<=90%"}
SECONDS = {"sampling": 0.5, "macs": 1.0, "steps(2)": 2.0, "peak_memory": 5.0}
"""The most that one question may take at 1,000 edges, by the budget that it is asked under."""
GROWTH = 8.0
"""Four times the edges may take so many times as long: less than their square."""

Question = Callable[[], object]


def converted(blocks: int) -> SuperNetwork:
    """A ResNet of three widths as a super network."""
    return from_model(HandResNet(8, blocks), torch.zeros(2, 3, 16, 16))


def shrunk_and_filled(net: SuperNetwork, budgets: list[Budget]) -> None:
    """One way from the full network into the budgets."""
    source = torch.Generator().manual_seed(0)
    preference = torch.randn(len(net.graph.edges), generator=source)
    weights = marginal_costs(budgets, net.graph).tolist()
    gates = Moves(net.graph, budgets, preference, weights, source).shrink(net.graph.full.gates())
    assert gates is not None
    Moves(net.graph, budgets, preference, weights, source).fill(gates)


def questions(net: SuperNetwork) -> Iterator[tuple[str, str, Question]]:
    """The name of the budget, what is asked, and how; each with costs of its own."""
    gamma = EdgeDistribution(net.graph)
    yield "sampling", "", lambda: gamma.sample(SAMPLES, torch.Generator().manual_seed(0))
    for name, text in BUDGETS.items():
        anchor = check(profile(parse_all([text], net)))
        fresh = [parse_all([text], net) for _ in range(3)]
        yield name, "profile", partial(profile, fresh[0])
        yield name, "start", partial(budgeted_start, fresh[1], net.graph, anchor)
        yield name, "shrink and fill", partial(shrunk_and_filled, net, fresh[2])


def seconds(ask: Question) -> float:
    """What the process computed meanwhile."""
    begun = time.process_time()
    ask()
    return time.process_time() - begun


def measured(net: SuperNetwork, repeats: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of every question."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats):
        for name, what, ask in questions(net):
            found.setdefault((name, what), []).append(seconds(ask))
    return found


def answers(small: dict[tuple[str, str], list[float]], large: dict[tuple[str, str], list[float]]) -> list[Answer]:
    """Seconds in the large super network; how they grow, where they can be told from nothing."""
    rows = []
    for (name, what), values in large.items():
        question = f"{name} {what}".strip()
        rows.append(answer(f"{question}, seconds", values, SECONDS[name]))
        if median(values) > 0.1:
            ratios = [a / b for a, b in zip(values, small[name, what], strict=True)]
            rows.append(answer(f"{question}, 4 × the edges", ratios, GROWTH))
    return rows


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, repeats=3)
    pin_threads(1)
    torch.manual_seed(0)
    nets = [converted(blocks) for blocks in BLOCKS]
    small, large = (measured(net, options.repeats) for net in nets)
    edges = [len(net.graph.edges) for net in nets]
    sizes = {str(count): found for count, found in zip(edges, (small, large), strict=True)}
    spread = {
        f"{name} {what}".strip(): {count: summarise(found[name, what]) for count, found in sizes.items()}
        for name, what in large
    }
    write_answers("many_edges", answers(small, large), seeds=[0], edges=edges, cpu_seconds=spread)


if __name__ == "__main__":
    main()
