"""What a training is made of: a module with its optimizer, what one step computes, what is saved and who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from budgetnet.data.feeds import Batch
from budgetnet.records.stopwatch import Untimed
from budgetnet.training.device import Device
from budgetnet.training.processes import Processes
from budgetnet.training.schedules import Rate
from budgetnet.training.tasks import Task


@dataclass
class Fit:
    """A module in training: a part of the state of a run.

    Args:
        module: What is trained.
        optimizer: The optimizer of its parameters, whose momentum may outlive a phase.
        step: Steps of the present course that are done.
    """

    module: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    compiled: nn.Module | None = None
    """The module as it is run, if it is compiled."""


class Forward(NamedTuple):
    """What a forward pass gave: outputs, the mean loss of each group of the batch, and what was drawn for the batch.

    `share` is that of the batch's groups which it was about, if the batch is computed in several micro-batches.
    """

    outputs: Tensor
    losses: Tensor
    drawn: Any = None
    share: float = 1.0


def whole(parts: Sequence[Forward]) -> Forward:
    """What the forward passes of all micro-batches of a batch gave together."""
    if len(parts) == 1:
        return parts[0]
    outputs, losses = torch.cat([part.outputs for part in parts]), torch.cat([part.losses for part in parts])
    return Forward(outputs, losses, parts[0].drawn)


class Stateful(Protocol):
    """What a checkpoint holds besides the trainer's own state."""

    @property
    def fit(self) -> Fit | None:
        """The training in progress."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Nested values with tensors."""
        ...


class Worker(Protocol):
    """What a step asks of the trainer."""

    @property
    def task(self) -> Task:
        """The loss and the metric."""
        ...

    @property
    def device(self) -> Device:
        """Where modules and inputs are."""
        ...

    @property
    def processes(self) -> Processes:
        """This process among those of the run."""
        ...

    @property
    def watch(self) -> Untimed:
        """The stopwatch."""
        ...

    def outputs(self, module: nn.Module, inputs: Any, gates: Tensor | None = None) -> Tensor:
        """The outputs of a forward pass in the device's precision."""
        ...


class Step:
    """A training step of a network alone: forward pass and loss. Other kinds of steps override the two methods."""

    def forwards(self, trainer: Worker, module: nn.Module, batch: Batch, number: int) -> Iterator[Forward]:
        """The forward passes of a batch, one for each micro-batch: the trainer goes backward between them."""
        yield self.forward(trainer, module, batch, number)

    def forward(self, trainer: Worker, module: nn.Module, batch: Batch, number: int) -> Forward:
        """The forward pass of a whole batch.

        Args:
            trainer: The trainer, which has the task and the stopwatch.
            module: The module in training.
            batch: Inputs and targets.
            number: The number of the step in its course.

        Returns:
            Outputs and losses; the mean of the losses is minimised.
        """
        inputs, targets = batch
        with trainer.watch.part("forward"):
            outputs = trainer.outputs(module, inputs)
            return Forward(outputs, trainer.task.group_losses(outputs, targets, 1))

    def update(self, trainer: Worker, forward: Forward, batch: Batch, progress: float) -> Mapping[str, float]:
        """Learns what is not a weight, after the optimizer's step; returns what is worth recording."""
        return {}


def nothing(*_: Any) -> dict[str, Any]:
    """The default of what a course may add."""
    return {}


@dataclass(frozen=True)
class Course:
    """What one call of `Trainer.fit` does.

    Args:
        phase: The name of the phase, for records and time limits.
        stream: The number of the first epoch of the batches that this phase trains on.
        steps: Steps to take.
        rate: The learning rate at a progress of these steps.
        step: What one step computes.
        look: Gives end-of-epoch metrics; by default the module is scored on validation data.
        snapshot: Gives further values for the step record at a step, written every so many steps.
        observe: Takes the values of every step and the progress after it, in order, when they are read.
        about: Further values for the record at the beginning of the phase.
        offset: Steps of the phase that other modules took before.
        total: Steps of the whole phase, if it fits several modules.
        seen: Batches of the stream that this module was trained on before.
        marks: Values of every record of this course: whose training it is, if the phase fits several modules.
    """

    phase: str
    stream: int
    steps: int
    rate: Rate
    step: Step = field(default_factory=Step)
    look: Callable[[], Mapping[str, Any]] | None = None
    snapshot: Callable[[int, int], Mapping[str, Any]] = nothing
    observe: Callable[[Mapping[str, float], float], object] = nothing
    about: Mapping[str, Any] = field(default_factory=dict)
    offset: int = 0
    total: int | None = None
    seen: int = 0
    marks: Mapping[str, Any] = field(default_factory=dict)
