"""Which memory format do convolutions want here? A full step with channels first over the same with channels last.

The whole super network of width 3, batch 128, one thread: forward, loss, backward and a step of SGD, in turns. Only the
input's format differs; everything after it follows.

    python -m benchmarks.memory_format [--large 10] [--small 40]
"""

from __future__ import annotations

import torch

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import LARGE, SMALL, Size, fabric_step, optimizer_of
from budgetnet.data.feeds import laid_out


def ratios(size: Size, repeats: int) -> list[float]:
    """Seconds with channels first over seconds with channels last, in each round."""
    net = size.fabric(width=3)
    images, labels = size.batch()
    optimizer = optimizer_of(net)
    first = fabric_step(net, (images.contiguous(), labels), lambda: None, optimizer)
    last = fabric_step(net, (laid_out(images, torch.channels_last), labels), lambda: None, optimizer)
    seconds = rounds({"first": first, "last": last}, repeats)
    return paired(seconds["first"], seconds["last"])


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, large=10, small=40)
    pin_threads(1)
    answers = [
        answer(f"channels first / channels last, {size}", ratios(size, repeats))
        for size, repeats in ((LARGE, options.large), (SMALL, options.small))
    ]
    write_answers("memory_format", answers, seeds=[0])


if __name__ == "__main__":
    main()
