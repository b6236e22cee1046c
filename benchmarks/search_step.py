"""Does the time of a search step follow what was sampled? Its ratio to a step of the full super network, per share.

Architectures of the fabric of width 3 as the default recipe draws eight of them and the paper one per example, new ones
at every step (one logit for all edges, found by bisection); batch 128, one thread. The ratio of a round is divided by
the mean live share of multiply-adds of its own sample, so 1 is a step whose time is proportional to what it computes.

    python -m benchmarks.search_step [--large 10] [--small 40]
"""

from __future__ import annotations

import itertools
from statistics import fmean
from typing import Any

from benchmarks._common import Answer, answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import BATCH, LARGE, SHARES, SMALL, Sampled, Size, fabric_step, optimizer_of, prepare

BARS = {(LARGE, 8): 1.15, (SMALL, 8): 1.35, (LARGE, BATCH): 1.8, (SMALL, BATCH): 2.6}
WARMUPS = 10
"""Steps before the clock runs."""


def measure(size: Size, repeats: int) -> tuple[list[Answer], list[dict[str, Any]]]:
    """An answer for each number of groups and share, and what was really sampled."""
    net, batch = size.fabric(width=3), size.batch()
    optimizer = optimizer_of(net)
    full = fabric_step(net, batch, lambda: None, optimizer)
    answers, details = [], []
    for groups, share in itertools.product((8, BATCH), SHARES):
        if groups < BATCH:  # one per example has more numbers of rows than are remembered
            prepare(net, batch, groups, optimizer)
        sampled = Sampled(net, share, groups)
        step = fabric_step(net, batch, sampled.take(repeats + WARMUPS).__next__, optimizer)
        seconds = rounds({"sampled": step, "full": full}, repeats, WARMUPS)
        raw, live = paired(seconds["sampled"], seconds["full"]), sampled.shares[WARMUPS:]
        question = f"search step / full step / live share, {size}, G={groups}, share {share}"
        answers.append(answer(question, paired(raw, live), BARS[size, groups]))
        details.append({"size": str(size), "groups": groups, "share": share, "live_share": fmean(live), "ratio": raw})
    return answers, details


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, large=10, small=40)
    pin_threads(1)
    found = [measure(size, repeats) for size, repeats in ((LARGE, options.large), (SMALL, options.small))]
    answers = [row for rows, _ in found for row in rows]
    write_answers("search_step", answers, seeds=[0], samples=[row for _, rows in found for row in rows])


if __name__ == "__main__":
    main()
