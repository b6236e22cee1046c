"""How much does computing only what was sampled save? Against masks: every edge for every example, times its gate.

That is what the public implementation of the method computes. ResNet fabric of width 9, eight groups, live share 0.45
of the multiply-adds, batch 128, one thread; both sides train on the same architectures.

    python -m benchmarks.masks [--large 6] [--small 20]
"""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor, nn

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import LARGE, SMALL, Sampled, Size, fabric_step, optimizer_of, prepare
from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.supernet import SuperNetwork

BAR = 2.0
WIDTH, GROUPS, SHARE, WARMUPS = 9, 8, 0.45, 1


class Masked(nn.Module):
    """The same super network with a mask on every edge."""

    def __init__(self, net: SuperNetwork) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        """Runs every edge on every example and multiplies by the gate of the example's group."""
        graph = self.net.graph
        masks = gates.float()[group_of_rows(len(x), len(gates))]
        values = [self.net.stem(x)]
        for node, incoming in list(enumerate(graph.incoming))[1:]:
            terms = [
                self.net.edge_modules[edge](values[graph.sources[edge]]) * masks[:, edge, None, None, None]
                for edge in incoming
            ]
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            values.append(self.net.activations[node](total))
        output: Tensor = self.net.head(values[-1])
        return output


def ratios(size: Size, repeats: int) -> tuple[list[float], float]:
    """Seconds with masks over seconds of ours, in each round; and the live share."""
    net, batch = size.fabric(WIDTH), size.batch()
    sampled = Sampled(net, SHARE, GROUPS)
    chosen = [sampled() for _ in range(repeats + WARMUPS)]
    optimizer = optimizer_of(net)
    sides = {
        "masks": fabric_step(Masked(net), batch, iter(chosen).__next__, optimizer),
        "ours": fabric_step(net, batch, iter(chosen).__next__, optimizer),
    }
    prepare(net, batch, GROUPS, optimizer)
    seconds = rounds(sides, repeats, WARMUPS)
    return paired(seconds["masks"], seconds["ours"]), fmean(sampled.shares)


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, large=6, small=20)
    pin_threads(1)
    torch.manual_seed(0)
    answers, shares = [], {}
    for size, repeats in ((LARGE, options.large), (SMALL, options.small)):
        found, shares[str(size)] = ratios(size, repeats)
        answers.append(answer(f"masked step / ours, width {WIDTH}, G={GROUPS}, {size}", found, BAR, ">="))
    write_answers("masks", answers, seeds=[0], live_share=shares)


if __name__ == "__main__":
    main()
