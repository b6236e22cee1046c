"""Losses and metrics: a value per example where there is one, so that every group of a batch has its own mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.data import IGNORE
from budgetnet.errors import UserError
from budgetnet.estimators import group_means
from budgetnet.plan import group_of_rows

Measure = Callable[[Tensor, Tensor], Tensor]
"""Outputs and targets to a value per example, or to one value for all of them."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per example; the mean over the labelled pixels of a segmentation."""
    losses = F.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORE)
    return losses if losses.dim() == 1 else losses.flatten(1).sum(1) / _labelled(targets).sum(1).clamp_min(1)


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether each example is right; the share of right labelled pixels of a segmentation."""
    right = (outputs.argmax(1) == targets).float()
    if right.dim() == 1:
        return right
    labelled = _labelled(targets)
    return (right.flatten(1) * labelled).sum(1) / labelled.sum(1).clamp_min(1)


def _labelled(targets: Tensor) -> Tensor:
    return (targets != IGNORE).flatten(1)


@dataclass(frozen=True)
class Task:
    """What is minimised, and what is reported (higher is better)."""

    loss: Measure = cross_entropy
    metric: Measure = accuracy

    def group_losses(self, outputs: Tensor, targets: Tensor, groups: int) -> Tensor:
        """The mean loss of each group of neighbouring examples."""
        losses = self.loss(outputs, targets)
        if losses.dim() == 1 and len(losses) == len(outputs):
            return group_means(losses, group_of_rows(len(losses), groups), groups)
        if losses.dim() != 0:
            raise UserError(
                f"the loss gave a tensor of shape {tuple(losses.shape)} for {len(outputs)} examples; "
                "return a value per example, or one mean"
            )
        if groups == 1:
            return losses[None]
        parts = zip(outputs.tensor_split(groups), targets.tensor_split(groups), strict=True)
        return torch.stack([self.loss(output, target) for output, target in parts])

    def totals(self, outputs: Tensor, targets: Tensor) -> tuple[float, float]:
        """The sums of loss and metric over the examples."""
        return (
            float(self.loss(outputs, targets).mean()) * len(outputs),
            float(self.metric(outputs, targets).mean()) * len(outputs),
        )
