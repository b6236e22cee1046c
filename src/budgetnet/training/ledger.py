"""What training steps leave to be recorded: on the device until a record is due, then read in one copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from budgetnet.errors import Diverged
from budgetnet.records.records import Tally
from budgetnet.training.device import Device
from budgetnet.training.metrics import Metric, finished

DIVERGED = 1e8
"""No useful weight is as large as this; a network with such a one does not recover."""


class Seen(NamedTuple):
    """What a step is worth recording.

    Args:
        phase: The phase.
        number: Steps of the phase before this one.
        loss: The loss, on the device.
        metric: The metric, or statistics of it, on the device.
        values: What the host knows, the learning rate `lr` among it.
        weight: Examples of the step.
        take: Takes the values of the step as numbers.
    """

    phase: str
    number: int
    loss: Tensor
    metric: Tensor
    values: Mapping[str, float]
    weight: int
    take: Callable[[Mapping[str, float]], object]


@dataclass
class Ledger:
    """The steps that nobody has read yet, and the means of those that were read.

    Args:
        device: Where losses and metrics are.
        metric: What the metric is called, and how its statistics become a number.
    """

    device: Device
    metric: Metric
    interval: Tally = field(default_factory=Tally)
    epoch: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._unread: list[Seen] = []

    def add(self, seen: Seen) -> None:
        """Takes a step, without reading it."""
        self._unread.append(seen)

    def read(self, module: nn.Module | None = None, place: str = "", rate: float = 0.0) -> None:
        """Reads the steps since the last time in one copy and adds them to the means.

        Args:
            module: Its weights are checked, too, in the same copy.
            place: Where the module is in its training, for a message.
            rate: Its learning rate.

        Raises:
            Diverged: If a loss or a weight of the module is no longer finite.
        """
        unread, self._unread = self._unread, []
        finish, metrics = self.metric.finish, [seen.metric for seen in unread]
        tensors = [seen.loss for seen in unread] + ([] if finish else metrics)
        weights = [] if module is None else _largest_weight(module)
        numbers = self.device.read(tensors + weights)
        scored = [finished(finish, part) for part in _together(metrics)] if finish else numbers[len(unread) :]
        for seen, loss, metric in zip(unread, numbers, scored, strict=False):
            if not math.isfinite(loss):
                where = f"step {seen.number} of the {seen.phase} phase"
                raise fault(f"the loss is {loss}", where, seen.values["lr"])
            values = {self.metric.name: metric, "loss": loss, **seen.values}
            self.interval.add(values, seen.weight)
            self.epoch.add(values, seen.weight)
            seen.take(values)
        if weights and not numbers[-1] < DIVERGED:
            raise fault("the weights have diverged", place, rate)

    def forget(self) -> None:
        """Drops the steps and means of a training that was given up."""
        self._unread = []
        self.interval.take()
        self.epoch.take()

    def state_dict(self) -> list[Any]:
        """The means; everything must have been read."""
        return [[dict(tally.sums), tally.weight] for tally in (self.interval, self.epoch)]

    def load_state_dict(self, state: Sequence[Any]) -> None:
        """Goes on from the means of a checkpoint."""
        self.interval, self.epoch = (Tally(sums, weight) for sums, weight in state)


def _together(statistics: Sequence[Tensor]) -> Sequence[Tensor]:
    """Statistics of several steps, fetched in one copy."""
    return list(torch.stack(list(statistics)).cpu()) if statistics else []


def _largest_weight(module: nn.Module) -> list[Tensor]:
    """The largest absolute weight of a module, or one that is no number; nothing if it has no weights."""
    largest = [parameter.detach().abs().max().float() for parameter in module.parameters() if parameter.numel()]
    return [torch.stack(largest).max()] if largest else []


def fault(what: str, place: str, rate: float) -> Diverged:
    """The error of a training that has diverged."""
    return Diverged(
        f"{what} in {place} at learning rate {rate:.3g}; the last good checkpoint is kept: go on with "
        "--resume --lr-scale 0.3, or look at the data"
    )
