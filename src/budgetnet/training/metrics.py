"""Losses and metrics, by name or a user's own: a value per example, or statistics that add up over a whole data set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.data.split import IGNORE
from budgetnet.errors import UserError, user_code
from budgetnet.records import results

Measure = Callable[[Any, Any], Tensor]
"""Outputs and targets to a value per example, or to one value for all of them."""


@dataclass(frozen=True)
class Metric:
    """What is reported of a network.

    Args:
        name: By which the console, records, summaries, pages and sweeps call it.
        function: Takes outputs and targets; gives a value per example, or one mean. With `finish`, it gives statistics
            (a tensor) that add up over batches instead.
        higher_is_better: The direction.
        format: How a value is shown, as in `f"{value:{format}}"`.
        finish: Makes one number of the statistics of a whole data set, for what is no mean over examples.
    """

    name: str
    function: Measure
    higher_is_better: bool = True
    format: str = ".4g"
    finish: Callable[[Tensor], float] | None = None

    @property
    def about(self) -> results.MetricDescription:
        """What summaries say of it."""
        return results.MetricDescription(self.name, self.higher_is_better, self.format)


def finished(finish: Callable[[Tensor], float], sums: Tensor) -> float:
    """One number of statistics, by a function that may be a user's."""
    with user_code("the metric's finish()", "; return one number"):
        return float(finish(sums.cpu()))


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Per example; the mean over the labelled pixels of a segmentation."""
    losses = F.cross_entropy(outputs, targets, reduction="none", ignore_index=IGNORE)
    return losses if losses.dim() == 1 else losses.flatten(1).sum(1) / labelled(targets).sum(1).clamp_min(1)


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error, the mean over the values of each example."""
    return _by_example((outputs - aligned(outputs, targets)).square())


def mae(outputs: Tensor, targets: Tensor) -> Tensor:
    """Absolute error, the mean over the values of each example."""
    return _by_example((outputs - aligned(outputs, targets)).abs())


def bce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Binary cross entropy of logits and truth values, the mean over the values of each example."""
    return _by_example(F.binary_cross_entropy_with_logits(outputs, aligned(outputs, targets), reduction="none"))


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether each example is right; the share of right labelled pixels of a segmentation."""
    right = (outputs.argmax(1) == targets).float()
    if right.dim() == 1:
        return right
    known = labelled(targets)
    return (right.flatten(1) * known).sum(1) / known.sum(1).clamp_min(1)


def top5(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whether the right class is among the five with the largest outputs."""
    best = outputs.topk(min(5, outputs.shape[1]), 1).indices
    return (best == targets[:, None]).any(1).float()


def binary_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The share of truth values that the signs of the logits say, per example."""
    return _by_example(((outputs > 0) == (aligned(outputs, targets) > 0.5)).float())


def confusion(outputs: Tensor, targets: Tensor) -> Tensor:
    """Labelled pixels (or examples) counted by their true class (row) and the predicted one (column)."""
    classes = outputs.shape[1]
    # what is not labelled is counted in a last place of its own: to leave it out would wait for the device
    pairs = torch.where(targets != IGNORE, targets * classes + outputs.argmax(1), classes**2).flatten()
    counts = torch.zeros(classes**2 + 1, dtype=torch.int64, device=outputs.device)
    return counts.index_add_(0, pairs, torch.ones_like(pairs))[:-1].view(classes, classes)


def mean_iou(counts: Tensor) -> float:
    """Intersection over union, averaged over the classes that occur in truth or prediction; 0 where none does."""
    right = counts.diagonal().double()
    union = counts.sum(0) + counts.sum(1) - right
    present = union > 0
    return float((right[present] / union[present]).mean()) if bool(present.any()) else 0.0


def r2_statistics(outputs: Tensor, targets: Tensor) -> Tensor:
    """Count, sum and sum of squares of the targets, and the sum of squared errors, for each value of an example."""
    wanted = wide(aligned(outputs, targets)).view(len(outputs), -1)
    errors = (wide(outputs).view_as(wanted) - wanted).square()
    return torch.stack([torch.ones_like(errors).sum(0), wanted.sum(0), wanted.square().sum(0), errors.sum(0)])


def r2(sums: Tensor) -> float:
    """The share of the variance of the targets that is explained, the mean over the values of an example."""
    count, total, squares, errors = sums
    variance = squares - total.square() / count
    return float((1 - errors / variance.clamp_min(1e-12)).mean())


def wide(values: Tensor) -> Tensor:
    """In float64, or as they are on devices that have none."""
    return values if values.device.type == "mps" else values.double()


def labelled(targets: Tensor) -> Tensor:
    """Which pixels of label maps count."""
    return (targets != IGNORE).flatten(1)


def aligned(outputs: Tensor, targets: Tensor) -> Tensor:
    """Targets in the shape and type of the outputs: a silent broadcast of N×1 with N would compare all pairs."""
    if outputs.shape != targets.shape and outputs.numel() != targets.numel():
        raise UserError(
            f"the network gives {_shape(outputs)} values for an example, its targets have {_shape(targets)}; "
            "let the head give as many as there are targets"
        )
    return targets.to(outputs.dtype).view_as(outputs)


def _by_example(values: Tensor) -> Tensor:
    return values if values.dim() == 1 else values.flatten(1).mean(1)


def _shape(values: Tensor) -> str:
    return "×".join(map(str, values.shape[1:])) or "1"


LOSSES: Mapping[str, Measure] = {"cross_entropy": cross_entropy, "mse": mse, "mae": mae, "bce": bce}

METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", accuracy, format=".2%"),
        Metric("top5", top5, format=".2%"),
        Metric("binary_accuracy", binary_accuracy, format=".2%"),
        Metric("mean_iou", confusion, format=".2%", finish=mean_iou),
        Metric("r2", r2_statistics, format=".4f", finish=r2),
        Metric("mse", mse, higher_is_better=False),
        Metric("mae", mae, higher_is_better=False),
    )
}

USUAL: Mapping[Measure, str] = {cross_entropy: "accuracy", mse: "r2", mae: "mae", bce: "binary_accuracy"}
"""The metric that goes with a loss, unless another is asked for."""


def loss_named(loss: str | Measure | None) -> Measure:
    """A loss by its name, or a function of the user's; cross entropy if none is given."""
    if loss is None:
        return cross_entropy
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise UserError(f"there is no loss named {loss!r}; use {', '.join(LOSSES)}, or give a function")
        return LOSSES[loss]
    if not callable(loss):
        raise UserError(f"the loss is {type(loss).__name__}; give a name of {', '.join(LOSSES)}, or a function")
    return loss


def metric_named(metric: str | Metric | Measure | None, loss: Measure) -> Metric:
    """A metric by its name, as a `Metric` or as a function, of which more is better; else the one that suits the loss.

    The metric of a loss of the user's own is that loss.
    """
    if metric is None:
        known = USUAL.get(loss)
        return METRICS[known] if known is not None else Metric("loss", loss, higher_is_better=False)
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        if metric not in METRICS:
            raise UserError(f"there is no metric named {metric!r}; use {', '.join(METRICS)}, or give a Metric")
        return METRICS[metric]
    if not callable(metric):
        raise UserError(f"the metric is {type(metric).__name__}; give a name of {', '.join(METRICS)}, or a Metric")
    name = getattr(metric, "__name__", type(metric).__name__)
    return Metric("metric" if name == "<lambda>" else name, metric)
