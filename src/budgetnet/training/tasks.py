"""Losses and metrics: a value per example where there is one, so that every group of a batch has its own mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.data import IGNORE
from budgetnet.errors import UserError
from budgetnet.network.executor.plan import group_of_rows

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


def is_label_map(outputs: Tensor, targets: Tensor) -> bool:
    """Whether outputs are scores N×classes×H×W of pixels and targets their class numbers N×H×W."""
    return outputs.dim() == 4 and targets.dim() == 3 and not targets.is_floating_point()


def confusion(outputs: Tensor, targets: Tensor) -> Tensor:
    """Labelled pixels counted by their true class (row) and the predicted one (column)."""
    classes = outputs.shape[1]
    labelled = targets != IGNORE
    pairs = targets[labelled] * classes + outputs.argmax(1)[labelled]
    return torch.bincount(pairs, minlength=classes**2).view(classes, classes).cpu()


def mean_iou(counts: Tensor) -> float:
    """Intersection over union, averaged over the classes that occur in truth or prediction; 0 where none does."""
    right = counts.diagonal().double()
    union = counts.sum(0) + counts.sum(1) - right
    present = union > 0
    return float((right[present] / union[present]).mean()) if bool(present.any()) else 0.0


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over examples, so that the scores of batches add up to that of all of them.

    The accuracy of a segmentation is therefore the share of all labelled pixels, and its mean intersection over union
    that of the whole split, neither of them a mean of values per image.
    """

    loss_sum: float
    metric_sum: float
    weight: float
    counts: Tensor | None = None

    def __add__(self, other: Score) -> Score:
        counts = None if self.counts is None or other.counts is None else self.counts + other.counts
        sums = self.loss_sum + other.loss_sum, self.metric_sum + other.metric_sum
        return Score(*sums, self.weight + other.weight, counts)

    @property
    def loss(self) -> float:
        """The mean loss."""
        return self.loss_sum / max(self.weight, 1.0)

    @property
    def metric(self) -> float:
        """The mean metric."""
        return self.metric_sum / max(self.weight, 1.0)

    @property
    def mean_iou(self) -> float | None:
        """The mean intersection over union of a segmentation; None for other tasks."""
        return None if self.counts is None else mean_iou(self.counts)


@dataclass(frozen=True)
class Task:
    """What is minimised, and what is reported (higher is better)."""

    loss: Measure = cross_entropy
    metric: Measure = accuracy

    def group_losses(self, outputs: Tensor, targets: Tensor, groups: int) -> Tensor:
        """The mean loss of each group of neighbouring examples."""
        losses = _tensor(self.loss(outputs, targets), "loss")
        if outputs.requires_grad and not losses.requires_grad:
            raise UserError("the loss has no gradient to learn by; compute it from the outputs with torch alone")
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

    def mean_metric(self, outputs: Tensor, targets: Tensor) -> float:
        """Of a batch."""
        return float(_tensor(self.metric(outputs, targets), "metric").mean())

    def score(self, outputs: Tensor, targets: Tensor) -> Score:
        """What these outputs are worth. Label maps weigh as many as they have labelled pixels, other examples one."""
        maps = is_label_map(outputs, targets)
        weights = _labelled(targets).sum(1).double() if maps else torch.ones(len(outputs), device=outputs.device)
        return Score(
            _weighted(_tensor(self.loss(outputs, targets), "loss"), weights),
            _weighted(_tensor(self.metric(outputs, targets), "metric"), weights),
            float(weights.sum()),
            confusion(outputs, targets) if maps else None,
        )


def _tensor(value: object, what: str) -> Tensor:
    """What a function of a user's gave, as numbers that have a mean."""
    if isinstance(value, int | float):
        value = torch.tensor(value)
    if not isinstance(value, Tensor):
        raise UserError(f"the {what} gave a {type(value).__name__}; return a tensor: a value per example, or one mean")
    return value if value.is_floating_point() else value.float()


def _weighted(values: Tensor, weights: Tensor) -> float:
    if values.shape == weights.shape:
        return float((values * weights).sum())
    return float(values.mean()) * float(weights.sum())


def group_means(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """The mean of per-example values in each group, given every example's group."""
    totals = values.new_zeros(groups).index_add_(0, group.to(values.device), values)
    return totals / torch.bincount(group, minlength=groups).to(values)
