"""Networks on data without training them: their score, and batch-norm statistics of their own."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import nn

from budgetnet.data.feeds import Batch, Feed
from budgetnet.training.device import Device
from budgetnet.training.tasks import Score, Task

RECALIBRATION_BATCHES = 3
"""Training batches from which batch-norm statistics are estimated again: more hardly change a score."""
EVIDENCE_BATCHES = 4
"""Validation batches that stand for the data where a cost depends on its input."""


def recalibrate(model: nn.Module, task: Task, train: Feed, batches: int = RECALIBRATION_BATCHES) -> None:
    """Batch-norm statistics of this network's own, from a few training batches; θ stays as it is."""
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    with torch.no_grad():
        for (inputs, _), _ in zip(train.training(0), range(batches), strict=False):
            task.outputs(model, inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def judge(model: nn.Module, task: Task, batches: Iterable[Batch], device: Device | None = None) -> Score:
    """The score of a network in eval mode on all batches together, in fp32 unless a device says otherwise.

    Args:
        model: The network.
        task: The loss and the metric.
        batches: Inputs and targets.
        device: Its precision; its processes share the batches out, and all of them get the score.

    Returns:
        The score.
    """
    model.eval()
    device = device or Device()
    with torch.no_grad(), device.autocast():
        parts = [task.score(task.outputs(model, x), y) for x, y in device.processes.every(batches)]
    found = functools.reduce(operator.add, parts) if parts else None
    if not device.processes.together:
        assert found is not None, "there are no batches"
        return found
    told = device.processes.gather_values(None if found is None else found.sums())
    sums = functools.reduce(operator.add, (part for part in told if part is not None))
    return replace(sums, finish=task.metric.finish)


def evaluate(
    model: nn.Module, task: Task, batches: Iterable[Batch], device: Device | None = None
) -> tuple[float, float]:
    """Mean loss and metric of a network in eval mode; a loss that is no number is as bad as can be."""
    score = judge(model, task, batches, device)
    return math.inf if math.isnan(score.loss) else score.loss, score.metric
