"""What does a converted model cost? Steps of the super network over the model's own, and the conversion itself.

A ResNet-20 (16 channels, 32×32, batch 128) and a ViT (192 wide, 6 heads, 6 layers, 65 tokens, batch 64), one thread, in
turns. Both sides do forward, loss, backward and a step of SGD. Four questions:

- the full architecture over the model, both on the same inputs;
- a search step of 8 groups over the model's own step, divided by the mean live share of multiply-adds of the groups:
  new architectures at every step, as a search for half of the multiply-adds starts (one logit for all edges, found by
  bisection). The model's step is the one that its author wrote, on contiguous images. For the ResNet the ratio to the
  same step on channels-last images, which the super network uses, is reported as well;
- an extracted network over the same widths written by hand, inference on 64 examples;
- seconds and peak memory of the conversion of a ViT of 12 layers, 768 wide, in a process of its own.

    python -m benchmarks.own_model_speed [--repeats 15]
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import Answer, answer, arguments, paired, pin_threads, rounds, write_answers
from benchmarks._networks import Sampled, fabric_step, hand_step, optimizer_of, prepare
from benchmarks._resnet import CLASSES, HandResNet
from budgetnet import extract, from_model
from budgetnet.data.feeds import laid_out
from budgetnet.network.supernet import SuperNetwork
from tests.models import ViT

GROUPS = 8
SHARE = 0.5
WARMUPS = 3
FULL_BAR, SEARCH_BAR, INFERENCE_BAR, SECONDS_BAR, MEMORY_BAR = 1.05, 1.35, 1.02, 20.0, 2.0

CONVERSION = """
import json, time, torch
from budgetnet import from_model
from tests.models import ViT
torch.set_num_threads(1)
model = ViT(768, 12, 12)
model.patch = torch.nn.Conv2d(3, 768, 16, 16)
model.pos = torch.nn.Parameter(torch.zeros(1, 197, 768))
examples = torch.zeros(2, 3, 224, 224)
with torch.no_grad():
    model(examples)
def resident(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(name))
with open("/proc/self/clear_refs", "w") as file:  # the peak begins anew: it was that of making the model
    file.write("5")
before = resident("VmRSS")
start = time.perf_counter()
from_model(model, examples)
seconds = time.perf_counter() - start
after = resident("VmHWM")  # ru_maxrss would be that of the parent process, if that is larger
size = sum(p.numel() * p.element_size() for p in model.parameters())
print(json.dumps({"seconds": seconds, "added_bytes": after - before, "model_bytes": size}))
"""


def vit() -> nn.Module:
    """A ViT of moderate size for 32×32 images in patches of 4."""
    model: nn.Module = ViT(192, 6, 6)
    model.pos = nn.Parameter(0.1 * torch.randn(1, 65, 192))
    model.head = nn.Linear(192, CLASSES)
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "ResNet-20": (lambda: HandResNet(16), 128),
    "ViT": (vit, 64),
}


def steps(name: str, repeats: int) -> tuple[list[Answer], dict[str, Any]]:
    """The training steps of a model and of its super network."""
    make, count = MODELS[name]
    torch.manual_seed(0)
    model = make()
    plain = torch.randn(count, 3, 32, 32), torch.randint(CLASSES, (count,))
    own = copy.deepcopy(model)
    net = from_model(model, plain[0][:2])
    images = laid_out(plain[0], net.memory_format)
    assert isinstance(images, Tensor)
    batch = images, plain[1]
    optimizer = optimizer_of(net)
    prepare(net, batch, GROUPS, optimizer)
    sampled = Sampled(net, SHARE, GROUPS)
    sides = {
        "search": fabric_step(net, batch, sampled.take(repeats + WARMUPS).__next__, optimizer),
        "full": fabric_step(net, batch, lambda: None, optimizer),
        "own": hand_step(own, plain),
        "same": hand_step(copy.deepcopy(own), batch),
    }
    seconds = rounds(sides, repeats, WARMUPS)
    live = sampled.shares[WARMUPS:]
    found = [answer(f"full architecture / {name}, training step", paired(seconds["full"], seconds["same"]), FULL_BAR)]
    for side, bar in (("own", SEARCH_BAR), ("same", None)):
        ratios = paired(paired(seconds["search"], seconds[side]), live)
        inputs = "as written" if side == "own" else "on the same inputs"
        found.append(answer(f"search step / {name} {inputs} / live share", ratios, bar))
    return found, {"model": name, "batch": count, "live_shares": live, "seconds": seconds}


def halved(net: SuperNetwork) -> nn.Module:
    """The network that keeps half of the units of every bundle."""
    gates = torch.ones(len(net.graph.edges), dtype=torch.bool)
    for units in net.graph.bundles.values():
        gates[list(units)[len(units) // 2 :]] = False
    return extract(net, net.graph.architecture(gates)).eval()


def by_hand() -> nn.Module:
    """The ResNet whose blocks have half of the hidden channels, in plain torch."""
    model = HandResNet(16)
    for block in model.blocks:
        outer, hidden = block.conv1.out_channels, block.conv1.out_channels // 2  # type: ignore[union-attr,operator]
        block.conv1 = nn.Conv2d(block.conv1.in_channels, hidden, 3, block.conv1.stride, 1)  # type: ignore[union-attr,arg-type]
        block.bn1, block.conv2 = nn.BatchNorm2d(hidden), nn.Conv2d(hidden, outer, 3, 1, 1)  # type: ignore[arg-type]
    return model.eval()


def inference(repeats: int) -> Answer:
    """The extracted network over the one by hand, in turns."""
    torch.manual_seed(0)
    small, hand = halved(from_model(HandResNet(16), torch.randn(2, 3, 32, 32))), by_hand()
    assert sum(p.numel() for p in small.parameters()) == sum(p.numel() for p in hand.parameters())
    images = torch.randn(64, 3, 32, 32)
    with torch.no_grad():
        seconds = rounds({"small": lambda: small(images), "hand": lambda: hand(images)}, repeats)
    ratios = paired(seconds["small"], seconds["hand"])
    return answer("extracted / the same widths by hand, inference", ratios, INFERENCE_BAR)


def conversion() -> tuple[list[Answer], dict[str, Any]]:
    """A ViT of 12 layers, 768 wide: seconds, and the peak of memory above the model's, over the model's size."""
    made = subprocess.run([sys.executable, "-c", CONVERSION], capture_output=True, text=True, check=True)
    found = json.loads(made.stdout.splitlines()[-1])
    share = 1 + found["added_bytes"] / found["model_bytes"]
    return [
        answer("seconds of the conversion, ViT 12 × 768", [found["seconds"]], SECONDS_BAR),
        answer("peak memory of the conversion / the model", [share], MEMORY_BAR),
    ], found


def main() -> None:
    """All questions."""
    options = arguments(__doc__, repeats=15)
    pin_threads(1)
    answers, details = [], []
    for name in MODELS:
        found, detail = steps(name, options.repeats)
        answers += found
        details.append(detail)
    answers.append(inference(6 * options.repeats))
    found, converted = conversion()
    write_answers("own_model_speed", [*answers, *found], seeds=[0], steps=details, conversion=converted)


if __name__ == "__main__":
    main()
