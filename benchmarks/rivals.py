"""What do the systems do that the paper compares with? LCCL and MSDNet, trained by our trainer on the reduced protocol.

CIFAR-10 at 16×16, 10,000 images, as `budgetnet reproduce` at reduced scale, or CIFAR-100 with 20,000. LCCL: 20 and 32
layers of 8, 16 and 32 channels; its multiply-adds are a mean over the test images. MSDNet: two scales, since a third
would be 4×4 and leave nothing for a classifier to shrink; an exit's multiply-adds are those of all layers and
classifiers up to it. Schedules are the published ones, as shares of the epochs; batches are of 64 images, as for all
networks of the protocol (LCCL's 128 leave it half as many steps, too few to learn). Every row is kept in the file as it
comes.

    python -m benchmarks.rivals --data-root DATA [--data cifar10] [--models LCCL,MSDNet] [--seeds 0,1,2] [--epochs 24]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import RESULTS, add_data_root, numbers, pin_threads, summarise, write_result
from budgetnet.costs.counts import count
from budgetnet.data.catalogue import load
from budgetnet.data.feeds import Feed
from budgetnet.reproduce.lccl import LCCL, mean_macs
from budgetnet.reproduce.msdnet import MSDNet, Settings, exit_losses
from budgetnet.reproduce.settings import REDUCED, Setting
from budgetnet.training.device import Device
from budgetnet.training.evaluation import judge
from budgetnet.training.fits import Course, Fit
from budgetnet.training.schedules import Rate, step_decay
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

DEPTHS = (20, 32)
SMALL = Settings(exits=4, channels=8, growth=4, factors=(1, 2), exit_channels=32)
LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
BATCH = 64
GENTLE, LCCL_MILESTONES, MSDNET_MILESTONES = 0.03, (0.45, 0.7, 0.9), (0.5, 0.75)


class Exits(nn.Module):
    """An MSDNet whose logits have the batch first."""

    def __init__(self, net: MSDNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Logits of every exit (batch × exits × classes)."""
        found: Tensor = self.net(x).transpose(0, 1)
        return found


def all_exits(outputs: Tensor, targets: Tensor) -> Tensor:
    """The published loss: the sum over the exits."""
    return exit_losses(outputs.transpose(0, 1), targets)


def last_exit(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the last exit is right, for the records."""
    return (outputs[:, -1].argmax(1) == targets).double()


def lccl_rate(progress: float) -> float:
    """A tenth of the rate for the first 3 % of the epochs, then the steps."""
    return LR / 10 if progress < GENTLE else step_decay(LR, progress, LCCL_MILESTONES)


def msdnet_rate(progress: float) -> float:
    """Divided by ten at a half and at three quarters."""
    return step_decay(LR, progress, MSDNET_MILESTONES)


@dataclass
class Alone:
    """The state of a training that is not resumed."""

    fit: Fit

    def state_dict(self) -> dict[str, Any]:
        """Nothing that anybody reads."""
        return {}


def trained(make: Callable[[], nn.Module], task: Task, rate: Rate, feeds: list[Feed], epochs: float) -> nn.Module:
    """A module after so many epochs of SGD with Nesterov's momentum."""

    def sgd(module: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            module.parameters(), LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True, foreach=True
        )

    train, validation, _ = feeds
    trainer = Trainer(task, train, validation, sgd)
    fit = trainer.begin(make())
    trainer.fit(Course("finish", 0, round(epochs * train.steps), rate, look=dict), fit, Alone(fit))
    return fit.module.eval()


def scores(module: nn.Module, feeds: list[Feed]) -> dict[str, float]:
    """Accuracy in percent on validation and test data."""
    _, validation, test = feeds
    return {
        name: 100 * judge(module, Task(), feed.evaluation()).metric
        for name, feed in (("validation", validation), ("test", test))
    }


@dataclass(frozen=True)
class Protocol:
    """The data, where they are, and for how long networks are trained on them."""

    setting: Setting
    root: str
    epochs: float


def feeds_of(protocol: Protocol, seed: int) -> list[Feed]:
    """Training, validation and test batches."""
    data = load(protocol.setting.data, protocol.root)
    device = Device()
    splits = ((data.train, data.augmentation), (data.validation, None), (data.test, None))
    return [device.feed(split, BATCH, seed, augmentation) for split, augmentation in splits]


def lccl_rows(depth: int, seed: int, protocol: Protocol) -> Iterator[dict[str, Any]]:
    """One network: its mean cost over the test images."""
    feeds, classes = feeds_of(protocol, seed), protocol.setting.classes
    torch.manual_seed(seed)
    net = trained(lambda: LCCL(depth, classes, channels=8), Task(), lccl_rate, feeds, protocol.epochs)
    assert isinstance(net, LCCL)
    cost = mean_macs(net, (inputs for inputs, _ in feeds[2].evaluation()))
    yield {"model": f"LCCL (ResNet-{depth})", "seed": seed, "macs": cost, **scores(net, feeds)}


def msdnet_rows(seed: int, protocol: Protocol) -> Iterator[dict[str, Any]]:
    """A row for every exit."""
    feeds = feeds_of(protocol, seed)
    settings = replace(SMALL, classes=protocol.setting.classes)
    torch.manual_seed(seed)
    task = Task(all_exits, last_exit)  # type: ignore[arg-type]
    net = trained(lambda: Exits(MSDNet(settings)), task, msdnet_rate, feeds, protocol.epochs)
    assert isinstance(net, Exits)
    for number in range(SMALL.exits):
        part = net.net.up_to(number).eval()
        cost = count(part, torch.zeros(1, *protocol.setting.shape)).macs
        name = f"MSDNet, exit at layer {SMALL.base + number * SMALL.step}"
        yield {"model": name, "seed": seed, "macs": cost, **scores(part, feeds)}


RUNS: Mapping[str, Callable[[int, Protocol], Iterator[dict[str, Any]]]] = {
    **{f"LCCL (ResNet-{depth})": functools.partial(lccl_rows, depth) for depth in DEPTHS},
    "MSDNet": msdnet_rows,
}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Multiply-adds and test accuracy of every model over its seeds."""
    found = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        found[model] = {key: summarise(row[key] for row in mine) for key in ("macs", "validation", "test")}
    return found


def main() -> None:
    """Trains what the file does not have; it is written after every network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_root(parser)
    parser.add_argument("--seeds", type=numbers, default="0,1,2")
    parser.add_argument("--epochs", type=float, default=24.0)
    parser.add_argument("--data", choices=("cifar10", "cifar100"), default="cifar10")
    parser.add_argument("--models", default="LCCL,MSDNet", help="beginnings of their names")
    given = parser.parse_args()
    pin_threads(1)
    variant = "" if given.data == "cifar10" else given.data
    protocol = Protocol(REDUCED[given.data], given.data_root, given.epochs)
    path = RESULTS / f"{'_'.join(filter(None, ['rivals', variant]))}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows: list[dict[str, Any]] = before["rows"] if before.get("epochs") == given.epochs else []
    asked = [name for name in RUNS if name.startswith(tuple(given.models.split(",")))]
    for seed, name in itertools.product(given.seeds, asked):
        if any(row["seed"] == seed and row["model"].startswith(name) for row in rows):
            continue
        rows += RUNS[name](seed, protocol)
        about = {"protocol": f"reduced: {protocol.setting.data}", "epochs": given.epochs, "seeds": given.seeds}
        write_result("rivals", {**about, "models": summary(rows), "rows": rows}, variant)


if __name__ == "__main__":
    main()
