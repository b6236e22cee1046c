"""How should a teacher be listened to? Weight, temperature and learning rate of the finish from trained weights.

A ResNet-20 of 8 channels is trained on 8,000 images of CIFAR-10 at 16×16. The recipe `trained` then brings it to 30 %
of its multiply-adds, without a race, so that every setting finishes the same network from the same inherited weights on
the same batches. Settings are compared by validation accuracy after the last epoch; test data are not looked at. With
`--examples` the networks are those of examples/trained_table.py and trained_signal.py, whose logits are large.

    python -m benchmarks.distillation --data-root DATA [--seeds 0,1] [--epochs 4] [--images 8000] [--epochs-before 10]
    python -m benchmarks.distillation --examples --seeds 0,1,2,3 --epochs 6

The first takes about 10 minutes of one core, the second one minute.
"""

from __future__ import annotations

import argparse
import os
import runpy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks._common import ROOT, numbers, pin_threads, summarise, write_result
from benchmarks._resnet import HandResNet
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data import load
from budgetnet.data.feeds import Feed, make_feed
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.inherited import lent_weights, original_of
from budgetnet.spaces import from_model
from budgetnet.strategies.runner import Runner
from budgetnet.strategies.trained import trained
from budgetnet.training.distillation import DistilledStep, Teacher
from budgetnet.training.evaluation import judge
from budgetnet.training.fits import Step
from budgetnet.training.schedules import one_cycle
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

DATA = "cifar10:size=16,limit={},validation=2000"
CHANNELS, BATCH, SHARE, RATE_BEFORE = 8, 128, "macs<=30%", 0.2
TEACHERS = [(0.0, 1.0), (0.5, 1.0), (0.5, 2.0), (0.5, 4.0), (0.8, 1.0), (0.8, 2.0), (0.8, 4.0)]
"""Weight and temperature; no teacher first."""
RATES = (0.05, 0.2)
"""Learning rates beside the recipe's own, for no teacher and the best one."""


@dataclass(frozen=True)
class Setting:
    """How the finish is done; a weight of 0 is no teacher."""

    weight: float
    temperature: float
    lr: float


def train_full(train: Feed, seed: int, epochs: int) -> SuperNetwork:
    """The trained model, as a super network."""
    torch.manual_seed(seed)
    model = HandResNet(CHANNELS).train()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = epochs * train.steps
    for epoch in range(epochs):
        for number, (inputs, targets) in enumerate(train.training(900_000 + epoch)):
            for group in optimizer.param_groups:
                group["lr"] = one_cycle(RATE_BEFORE, (epoch * train.steps + number) / steps, 0.2)
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return from_model(model.eval(), torch.zeros(2, 3, 16, 16))


@dataclass(frozen=True, eq=False)
class Case:
    """A trained network and its data, with one seed."""

    seed: int
    net: SuperNetwork
    train: Feed
    validation: Feed

    @cached_property
    def full(self) -> float:
        """Validation accuracy of the full network."""
        original = original_of(self.net)
        assert original is not None
        return judge(original, Task(), self.validation.evaluation()).metric


def finish(case: Case, setting: Setting, epochs: float) -> float:
    """Validation accuracy of the network that the recipe makes under a setting."""
    net, train, validation, seed = case.net, case.train, case.validation, case.seed
    recipe = trained(epochs).changed({"racers": 1, "lr": setting.lr})
    budgets = parse_all([SHARE], net)
    fallback = check(profile(budgets, seed), seed)
    original = original_of(net)
    assert original is not None
    teacher = Teacher(original, weight=setting.weight, temperature=setting.temperature)
    alone = DistilledStep(teacher) if setting.weight else Step()
    trainer = Trainer(Task(), train, validation, recipe.make_optimizer, alone=alone)
    start = recipe.start(budgets, net.graph, fallback)
    with lent_weights(net):
        outcome = Runner.of_search(recipe, net, budgets, fallback, start, trainer, seed).run()
        return judge(outcome.model, Task(), validation.evaluation()).metric


def cifar_cases(data_root: str, images: int, epochs_before: int, seeds: Sequence[int]) -> Iterator[Case]:
    """The ResNet, trained anew for every seed."""
    data = load(DATA.format(images), Path(data_root))
    for seed in seeds:
        train = make_feed(data.train, BATCH, seed, data.augmentation)
        yield Case(seed, train_full(train, seed, epochs_before), train, make_feed(data.validation, 500, seed))


def example_cases(seeds: Sequence[int]) -> dict[str, list[Case]]:
    """The trained networks of two examples, by name."""
    table, signal = (runpy.run_path(str(ROOT / "examples" / f"trained_{name}.py")) for name in ("table", "signal"))
    flat = from_model(table["trained_model"](), torch.zeros(2, 10))
    wave = from_model(signal["trained_model"](), torch.zeros(2, 1, 64), slices=4)
    made = {
        "table": (flat, table["rows"](2000, 1), table["rows"](2000, 2)),
        "signal": (wave, signal["signals"](1000, 1), signal["signals"](2000, 2)),
    }
    return {
        name: [Case(seed, net, make_feed(train, BATCH, seed), make_feed(held, 500, seed)) for seed in seeds]
        for name, (net, train, held) in made.items()
    }


def compare(cases: Sequence[Case], epochs: float) -> dict[str, Any]:
    """Every setting with every seed: all teachers at the recipe's rate, then the best of them at other rates."""
    usual = trained().weights.lr
    scores: dict[Setting, list[float]] = {}
    print("full network:", [round(case.full, 4) for case in cases], flush=True)

    def run(setting: Setting) -> None:
        for case in cases:
            scores.setdefault(setting, []).append(finish(case, setting, epochs))
        print(setting, [round(score, 4) for score in scores[setting]], flush=True)

    for weight, temperature in TEACHERS:
        run(Setting(weight, temperature, usual))
    none, *teachers = scores
    best = max(teachers, key=lambda setting: sum(scores[setting]))
    for lr in RATES:
        for setting in (none, best):
            run(Setting(setting.weight, setting.temperature, lr))
    rows = [{**vars(setting), "scores": found, **summarise(found)} for setting, found in scores.items()]
    gains = {lr: _gain(scores, none, best, lr) for lr in (usual, *RATES)}
    return {
        "seeds": [case.seed for case in cases],
        "epochs": epochs,
        "full_network": [case.full for case in cases],
        "rows": rows,
        "best_teacher": vars(best),
        "points_over_no_teacher_by_rate": gains,
    }


def _gain(scores: dict[Setting, list[float]], none: Setting, best: Setting, lr: float) -> dict[str, float]:
    """Points that the best teacher adds at one rate, paired by seed."""
    one, other = (scores[Setting(setting.weight, setting.temperature, lr)] for setting in (best, none))
    return summarise(100 * (a - b) for a, b in zip(one, other, strict=True))


def main() -> None:
    """Compares the settings and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", default=os.environ.get("BUDGETNET_DATA", "data"))
    parser.add_argument("--seeds", type=numbers, default=[0, 1])
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--images", type=int, default=8000)
    parser.add_argument("--epochs-before", type=int, default=10)
    parser.add_argument("--examples", action="store_true")
    options = parser.parse_args()
    pin_threads()
    if options.examples:
        found = {name: compare(cases, options.epochs) for name, cases in example_cases(options.seeds).items()}
        write_result("distillation", found, "examples")
        return
    cases = list(cifar_cases(options.data_root, options.images, options.epochs_before, options.seeds))
    about = {"data": DATA.format(options.images), "epochs_before": options.epochs_before}
    write_result("distillation", {**about, **compare(cases, options.epochs)})


if __name__ == "__main__":
    main()
