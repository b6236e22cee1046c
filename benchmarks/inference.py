"""Is the extracted network as fast as the same network by hand? ResNet-20, batch norm folded, at batch 1 and 128.

Both have the same weights and give the same logits, which is checked. Eager torch, inference mode, one thread.

    python -m benchmarks.inference [--single 400] [--batch 30]
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks._common import answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import BATCH, LARGE, SMALL, Size
from benchmarks._resnet import HandResNet
from budgetnet.export.folding import fold
from budgetnet.network.extract import extract

BAR = 1.03


def by_hand(network: nn.Module, channels: int) -> HandResNet:
    """The network in plain torch, with the weights of the extracted one: convolutions of both come in order of use."""
    hand = HandResNet(channels, norm=False).eval()
    layers = [module for module in network.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    own = [module for module in hand.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    for mine, theirs in zip(own, layers, strict=True):
        mine.load_state_dict(theirs.state_dict())
    return hand


def ratios(size: Size, batch: int, repeats: int) -> list[float]:
    """Seconds of the extracted network over seconds of the one by hand, in each round."""
    net = size.fabric(width=3)
    network = fold(extract(net, net.architecture("resnet-20")))
    hand, images = by_hand(network, size.channels), size.batch(batch)[0]

    def run(module: nn.Module) -> Tensor:
        with torch.inference_mode():
            outputs: Tensor = module(images)
            return outputs

    torch.testing.assert_close(run(network), run(hand), rtol=1e-4, atol=1e-4)
    seconds = rounds({"extracted": lambda: run(network), "hand": lambda: run(hand)}, repeats, warmups=5)
    return paired(seconds["extracted"], seconds["hand"])


def main() -> None:
    """Both sizes and both batches."""
    options = arguments(__doc__, single=400, batch=30)
    pin_threads(1)
    answers = [
        answer(f"extracted / hand-written inference, batch {batch}, {size}", ratios(size, batch, repeats), BAR)
        for size, factor in ((LARGE, 1), (SMALL, 4))
        for batch, repeats in ((1, options.single), (BATCH, factor * options.batch))
    ]
    write_answers("inference", answers, seeds=[0])


if __name__ == "__main__":
    main()
