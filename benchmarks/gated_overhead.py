"""What does a gate cost? A training step of the super network at its ResNet-20 over the same network by hand.

Width 3, batch 128, one thread; both sides do forward, loss, backward and a step of SGD, in turns.

    python -m benchmarks.gated_overhead [--large 30] [--small 120]
"""

from __future__ import annotations

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import LARGE, SMALL, Size, fabric_step, hand_step, optimizer_of
from benchmarks._resnet import HandResNet
from budgetnet.costs import params

BAR = 1.03


def ratios(size: Size, repeats: int) -> list[float]:
    """Seconds of the gated network over seconds of the one by hand, in each round."""
    net, hand, batch = size.fabric(width=3), HandResNet(size.channels), size.batch()
    spine = net.architecture("resnet-20")
    assert params(net)(spine) == sum(p.numel() for p in hand.parameters())
    gates = spine.gates()[None]
    sides = {"gated": fabric_step(net, batch, lambda: gates, optimizer_of(net)), "hand": hand_step(hand, batch)}
    seconds = rounds(sides, repeats)
    return paired(seconds["gated"], seconds["hand"])


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, large=30, small=120)
    pin_threads(1)
    write_answers(
        "gated_overhead",
        [
            answer(f"gated step / hand-written step, {size}", ratios(size, repeats), BAR)
            for size, repeats in ((LARGE, options.large), (SMALL, options.small))
        ],
        seeds=[0],
    )


if __name__ == "__main__":
    main()
