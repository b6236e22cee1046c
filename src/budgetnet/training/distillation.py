"""Distillation: a network that is trained alone also learns from the outputs of a teacher (Hinton et al., 2015)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.data.feeds import Batch
from budgetnet.data.nested import Nested
from budgetnet.errors import UserError
from budgetnet.training.fits import Forward, Step, Worker
from budgetnet.training.metrics import Measure, bce, cross_entropy
from budgetnet.training.tasks import Task

WEIGHT, TEMPERATURE = 0.5, 2.0
"""The teacher's share of the loss, and what logits are divided by. T²·KL has gradients up to T times those of cross
entropy: no network of `benchmarks.distillation` loses more than about a point at 2; at 4 with a larger weight one loses
five."""
ARGUMENT = "teacher"
"""A user's loss with a third argument of this name takes the teacher's outputs itself."""


def soft_cross_entropy(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T²·KL(softmax(teacher / T) ‖ softmax(outputs / T)) over dimension 1; the mean over the pixels of an image."""
    wanted, found = F.log_softmax(teacher / temperature, 1), F.log_softmax(outputs / temperature, 1)
    divergence = temperature**2 * F.kl_div(found, wanted, reduction="none", log_target=True).sum(1)
    return divergence if divergence.dim() == 1 else divergence.flatten(1).mean(1)


def soft_bce(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The same for independent truth values: binary cross entropy with the teacher's probabilities."""
    wanted = torch.sigmoid(teacher / temperature)
    losses = F.binary_cross_entropy_with_logits(outputs / temperature, wanted, reduction="none")
    return temperature**2 * losses.flatten(1).mean(1)


def squared_distance(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The mean squared difference of an example's values, for regression."""
    return (outputs - teacher).square().reshape(len(outputs), -1).mean(1)


def cosine_distance(outputs: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """1 − the cosine of an example's values, for embeddings."""
    return 1 - F.cosine_similarity(outputs.flatten(1), teacher.flatten(1), 1)


KINDS: Mapping[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "kl": soft_cross_entropy,
    "bce": soft_bce,
    "mse": squared_distance,
    "cosine": cosine_distance,
}
"""How outputs are compared with the teacher's."""


@dataclass(frozen=True, eq=False)
class Teacher:
    """A teacher and how it is listened to.

    Args:
        module: Takes the inputs of a batch as the network does; it is run in evaluation mode.
        name: What it is called in records and reports.
        kind: A name of `KINDS`; None follows from the loss: `kl` for cross entropy, `bce` for bce, otherwise `mse`.
        weight: Its share of the loss.
        temperature: What logits are divided by.
    """

    module: nn.Module
    name: str = "own"
    kind: str | None = None
    weight: float = WEIGHT
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise UserError(f"there is no distillation {self.kind!r}; use {', '.join(KINDS)}")
        if not 0 <= self.weight <= 1:
            raise UserError(f"the teacher's weight {self.weight} is no share of the loss; give 0 to 1")
        if not self.temperature > 0:
            raise UserError(f"the temperature {self.temperature} cannot divide logits; give a number above zero")

    def losses(self, task: Task, outputs: Tensor, targets: Nested, wanted: Tensor) -> Tensor:
        """(1 − weight)·loss + weight·distance to the teacher, as one mean; the user's own loss if it takes both."""
        if takes_teacher(task.loss):
            loss: Any = task.loss
            return replace(task, loss=partial(loss, **{ARGUMENT: wanted})).group_losses(outputs, targets, 1)
        if outputs.shape != wanted.shape:
            raise UserError(
                f"the teacher's output has shape {tuple(wanted.shape)}, the network's {tuple(outputs.shape)}; "
                "give a teacher for the same task"
            )
        distance = KINDS[self.kind or _kind_of(task.loss)](outputs, wanted, self.temperature)
        return (1 - self.weight) * task.group_losses(outputs, targets, 1) + self.weight * distance.mean()


@dataclass
class DistilledStep(Step):
    """A training step of a network alone, with the teacher's outputs computed once for the batch."""

    teacher: Teacher

    def forward(self, trainer: Worker, module: nn.Module, batch: Batch, number: int) -> Forward:
        """See `Step`."""
        inputs, targets = batch
        with trainer.watch.part("teacher"), torch.no_grad():
            self.teacher.module.eval()
            wanted = trainer.outputs(self.teacher.module, inputs)
        with trainer.watch.part("forward"):
            outputs = trainer.outputs(module, inputs)
            return Forward(outputs, self.teacher.losses(trainer.task, outputs, targets, wanted))


def takes_teacher(loss: Measure) -> bool:
    """Whether a loss has an argument for the teacher's outputs."""
    try:
        return ARGUMENT in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        return False


def _kind_of(loss: Measure) -> str:
    return "kl" if loss is cross_entropy else "bce" if loss is bce else "mse"
