"""What all contestants share: the data, the trained network, and the one way in which smaller networks are finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from benchmarks._resnet import HandResNet
from benchmarks.trained.ledger import Entry, Ledger, key_of
from budgetnet.costs.counts import count
from budgetnet.data import DataSet, load
from budgetnet.data.feeds import Batch, Feed
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import from_model
from budgetnet.strategies.phases import STREAMS, Finish, steps_of
from budgetnet.strategies.recipes import INHERITED_RISE, RISE, fast
from budgetnet.strategies.trained import trained
from budgetnet.training.device import Device
from budgetnet.training.distillation import DistilledStep, Teacher
from budgetnet.training.evaluation import judge
from budgetnet.training.fits import Course, Fit, Step
from budgetnet.training.optimization import Optimization
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

NONE, SELF = "none", "self"
"""Teachers."""
FP32, BF16 = "fp32", "bf16"
"""Precisions of the training; nothing is said of the former in the ledger."""
BEFORE_STREAM = 900_000
"""The first epoch of the batches that the full network is trained on."""


@dataclass(frozen=True)
class Protocol:
    """What is made smaller: a ResNet-20 by hand, trained on some data; and for how long, before and after."""

    data: str = "cifar10:size=16,limit=30000"
    channels: int = 16
    blocks: int = 3
    before: float = 20.0
    after: float = 8.0
    precision: str = FP32


@dataclass(frozen=True)
class Training:
    """How a network is trained alone."""

    epochs: float
    lr: float
    rise: float = INHERITED_RISE


@dataclass
class Alone:
    """The state of such a training; an interrupted one is run again."""

    fit: Fit

    def state_dict(self) -> dict[str, Any]:
        """Nothing is saved."""
        return {}


@dataclass(frozen=True, eq=False)
class Study:
    """A protocol with its data, ledger and working folder; `peers` is the interpreter of the other tools."""

    protocol: Protocol
    ledger: Ledger
    out: Path
    data_root: str | None = None
    peers: Path | None = None

    @cached_property
    def data(self) -> DataSet:
        """Training, validation and test data."""
        return load(self.protocol.data, self.data_root)

    @property
    def example(self) -> torch.Tensor:
        """Two inputs of zeros."""
        return torch.zeros(2, *self.data.input_shape)

    @property
    def batch(self) -> int:
        """Examples in a training batch."""
        return fast().batch_size

    def known(self, **more: Any) -> dict[str, Any]:
        """What a run of this protocol follows from."""
        known = asdict(self.protocol)
        if known["precision"] == FP32:
            del known["precision"]
        return {**known, **more}

    def entries(self, **wanted: Any) -> list[Entry]:
        """The entries of this protocol that agree with all of these values."""
        known = self.known(**wanted)
        found = self.ledger.entries().values()
        return [entry for entry in found if all(entry.get(name) == value for name, value in known.items())]

    def feed(self, part: str, seed: int) -> Feed:
        """Batches of a part of the data; those for training are cropped and flipped."""
        crop = self.data.augmentation if part == "train" else None
        return Device().feed(getattr(self.data, part), self.batch, seed, crop, torch.channels_last)

    def calibration(self, seed: int, examples: int) -> Iterator[Batch]:
        """Training batches for an importance pass."""
        train = self.feed("train", seed)
        return islice(train.training(STREAMS["importance"]), -(-examples // self.batch))

    def full(self, seed: int) -> nn.Module:
        """The trained network; it is trained if the folder does not have it."""
        whole = Training(self.protocol.before, fast().weights.lr, RISE)
        known = self.known(contestant="full", seed=seed, lr=whole.lr)
        file = self.out / f"full-{key_of(known)}.safetensors"
        model = self.fresh(seed)
        if not file.exists():
            found = self.train(model, seed, whole, stream=BEFORE_STREAM)
            self.out.mkdir(parents=True, exist_ok=True)
            save_file({name: value.contiguous() for name, value in model.state_dict().items()}, file)
            self.ledger.run(known, lambda: found)
        model.load_state_dict(load_file(file))
        return model.eval()

    def fresh(self, seed: int) -> nn.Module:
        """The network with fresh weights."""
        torch.manual_seed(seed)
        return HandResNet(self.protocol.channels, self.protocol.blocks, inputs=self.data.input_shape[0])

    def space(self, model: nn.Module) -> SuperNetwork:
        """The super network of a model."""
        return from_model(model, self.example)

    def teacher(self, name: str, seed: int) -> Teacher | None:
        """The full network as a teacher, as the recipe listens to it; None for none."""
        return Teacher(_laid_out(self.full(seed)), SELF) if name == SELF else None

    def finishing(self, lr: float | None = None) -> Training:
        """How smaller networks are finished."""
        return Training(self.protocol.after, trained().weights.lr if lr is None else lr)

    def train(
        self, model: nn.Module, seed: int, how: Training, teacher: Teacher | None = None, stream: int | None = None
    ) -> dict[str, Any]:
        """Trains a network alone with this package's trainer, and judges it after the last epoch."""
        model = _laid_out(model)
        train, validation = self.feed("train", seed), self.feed("validation", seed)
        optimization = Optimization(lr=how.lr)
        step = Step() if teacher is None else DistilledStep(teacher)
        device = Device(precision=self.protocol.precision)
        trainer = Trainer(Task(), train, validation, optimization.make, device, alone=step)
        fit = trainer.begin(model)
        first = STREAMS[Finish.name] if stream is None else stream
        course = Course(Finish.name, first, steps_of(how.epochs, train), optimization.rate(how.rise), step)
        trainer.fit(course, fit, Alone(fit))
        return {**self.judged(model, seed), "seconds": round(trainer.seconds[Finish.name], 1)}

    def judged(self, model: nn.Module, seed: int) -> dict[str, Any]:
        """Scores and counts of a network."""
        found = count(model.eval(), self.example[:1])
        scores = {
            part: judge(model, Task(), self.feed(part, seed).evaluation()).metric for part in ("validation", "test")
        }
        return {**scores, "macs": round(found.macs), "params": found.params}


def _laid_out(model: nn.Module) -> nn.Module:
    """A network with its channels last, as a search trains it."""
    found: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return found
