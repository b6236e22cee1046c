"""Does a step cost the same per live edge, however large the super network is? From 50 to 5,000 edges of equal work.

Every node but the first takes from the one and the two before it; an edge is a linear layer of 32 units on 64 examples,
so that Python and the plan weigh much. Eight groups, every second skip sampled, new architectures at every step. One
thread; the sizes run in turns, and a round's time per live edge is divided by that of the smallest in the same round.

    python -m benchmarks.growth [--repeats 12]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._common import answer, arguments, pin_threads, quartiles, rounds, write_answers
from benchmarks._networks import fabric_step, optimizer_of
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

EDGES = (50, 200, 1000, 5000)
UNITS, EXAMPLES, GROUPS, WARMUPS = 32, 64, 8, 2
BAR = 1.3


def ladder(edges: int) -> SuperNetwork:
    """A chain with skips over one node: two edges a node."""
    pairs = [(i, i + 1) for i in range(edges // 2 + 1)] + [(i, i + 2) for i in range(edges // 2 - 1)]
    graph = Graph(Edge(f"{a}-{b}", f"n{a}", f"n{b}") for a, b in sorted(pairs))
    modules = {edge.name: nn.Linear(UNITS, UNITS) for edge in graph.edges}
    return SuperNetwork(graph, modules, input_shape=(UNITS,), activation=nn.Tanh())


def samples(net: SuperNetwork, count: int) -> list[Tensor]:
    """Sets of gates: the chain, and about half of the skips."""
    generator = torch.Generator().manual_seed(0)
    skips = torch.tensor([b - a > 1 for a, b in zip(net.graph.sources, net.graph.targets, strict=True)])
    return [
        (torch.rand(GROUPS, len(net.graph.edges), generator=generator) < 0.5) | ~skips.expand(GROUPS, -1)
        for _ in range(count)
    ]


def side(edges: int, sets: int) -> tuple[Callable[[], None], list[int]]:
    """A training step, and the number of edges that each set of gates keeps in some group."""
    net = ladder(edges)
    gates = samples(net, sets)
    given: Iterator[Tensor] = iter(gates)
    batch = torch.randn(EXAMPLES, UNITS), torch.randint(UNITS, (EXAMPLES,))
    assert F.cross_entropy(net(batch[0], gates[0]), batch[1]).isfinite()
    return (
        fabric_step(net, batch, given.__next__, optimizer_of(net)),
        [int(net.graph.live(rows).any(0).sum()) for rows in gates],
    )


def main() -> None:
    """All sizes in turns."""
    options = arguments(__doc__, repeats=12)
    pin_threads(1)
    # gradients fade along thousands of layers: numbers next to zero must not take more time than others
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    sides = {edges: side(edges, options.repeats + WARMUPS) for edges in EDGES}
    seconds = rounds({str(edges): step for edges, (step, _) in sides.items()}, options.repeats, WARMUPS)
    per_edge = {
        edges: [s / n for s, n in zip(seconds[str(edges)], live[WARMUPS:], strict=True)]
        for edges, (_, live) in sides.items()
    }
    small = per_edge[EDGES[0]]
    answers = [
        answer(
            f"step time per live edge, {edges} edges / {EDGES[0]}",
            [a / b for a, b in zip(per_edge[edges], small, strict=True)],
            BAR,
        )
        for edges in EDGES[1:]
    ]
    medians = {str(edges): quartiles(found)[1] for edges, found in per_edge.items()}
    largest = max(medians.values()) / min(medians.values())
    write_answers("growth", answers, seeds=[0], seconds_per_live_edge=medians, largest_over_smallest=largest)


if __name__ == "__main__":
    main()
