"""What a network is trained for: its forward pass, the loss of every group of a batch, and scores that add up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from budgetnet.data.nested import Nested, rows, select
from budgetnet.errors import Interrupted, UserError, reason, user_code
from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.supernet import SuperNetwork, call
from budgetnet.training.metrics import (
    METRICS,
    Measure,
    Metric,
    confusion,
    cross_entropy,
    finished,
    labelled,
    loss_named,
    mean_iou,
    metric_named,
    wide,
)

Forward = Callable[[Callable[..., Any], Nested], Tensor]
"""A user's own forward pass: a model to call, and the inputs of a batch, to outputs."""


@dataclass(frozen=True, eq=False)
class Score:
    """Sums over examples, so that the scores of batches add up to that of all of them.

    The accuracy of a segmentation is therefore the share of all labelled pixels, and its mean intersection over union
    that of the whole split, neither of them a mean of values per image.
    """

    loss_sum: Tensor
    metric_sum: Tensor
    weights: Tensor
    counts: Tensor | None = None
    finish: Callable[[Tensor], float] | None = None

    def __add__(self, other: Score) -> Score:
        counts = None if self.counts is None or other.counts is None else self.counts + other.counts
        sums = self.loss_sum + other.loss_sum, self.metric_sum + other.metric_sum
        return Score(*sums, self.weights + other.weights, counts, self.finish)

    def sums(self) -> Score:
        """The sums alone, on the host: what another process adds to its own."""
        counts = None if self.counts is None else self.counts.cpu()
        return Score(self.loss_sum.cpu(), self.metric_sum.cpu(), self.weights.cpu(), counts)

    @functools.cached_property
    def _numbers(self) -> list[float]:
        """The sums of losses, weights and, where it is one number, of the metric, read in one copy."""
        sums = [self.loss_sum, self.weights, *([self.metric_sum] if self.finish is None else [])]
        found: list[float] = torch.stack([value.to(self.loss_sum) for value in sums]).tolist()
        return found

    @property
    def loss(self) -> float:
        """The mean loss."""
        return self._numbers[0] / max(self._numbers[1], 1.0)

    @property
    def metric(self) -> float:
        """The metric of all examples."""
        if self.finish is None:
            return self._numbers[2] / max(self._numbers[1], 1.0)
        return finished(self.finish, self.metric_sum)

    @property
    def examples(self) -> int:
        """How many examples (of a segmentation: labelled pixels) were scored."""
        return round(self._numbers[1])

    @property
    def mean_iou(self) -> float | None:
        """The mean intersection over union of a segmentation; None for other tasks."""
        return None if self.counts is None else mean_iou(self.counts.cpu())


@dataclass(frozen=True)
class Task:
    """What is minimised, and what is reported.

    Args:
        loss: Outputs and targets to a value per example, or to one mean.
        metric: What is reported.
        forward: Runs a model on the inputs of a batch, where calling it with them does not fit.
    """

    loss: Measure = cross_entropy
    metric: Metric = field(default=METRICS["accuracy"])
    forward: Forward | None = None

    def __post_init__(self) -> None:
        given: Any = self.metric  # a plain function is a metric, too
        object.__setattr__(self, "metric", metric_named(given, self.loss))

    @classmethod
    def of(
        cls,
        loss: str | Measure | None = None,
        metric: str | Metric | Measure | None = None,
        forward: Forward | None = None,
    ) -> Task:
        """A task from names or functions; what is not given follows from the rest."""
        chosen = loss_named(loss)
        return cls(chosen, metric_named(metric, chosen), forward)

    def outputs(self, module: nn.Module, inputs: Nested, gates: Tensor | None = None) -> Tensor:
        """The forward pass of a network, or of a super network under these gates."""
        if self.forward is not None:
            model = module if gates is None else functools.partial(module, gates=gates)
            with user_code("forward()", "; correct it"):
                outputs = self.forward(model, inputs)
            return _checked_outputs(outputs, inputs)
        if isinstance(module, SuperNetwork):
            return cast(Tensor, module(inputs, gates))
        if isinstance(inputs, Tensor):
            return call(module, inputs)
        return cast(Tensor, module(**inputs) if isinstance(inputs, Mapping) else module(*inputs))

    def group_losses(self, outputs: Tensor, targets: Nested, groups: int) -> Tensor:
        """The mean loss of each group of neighbouring examples."""
        losses = _measured(self.loss, "loss", outputs, targets)
        if outputs.requires_grad and not losses.requires_grad:
            raise UserError("the loss has no gradient to learn by; compute it from the outputs with torch alone")
        if losses.dim() == 1:
            return group_means(losses, _groups_on(losses.device, len(losses), groups), groups)
        if groups == 1:
            return losses[None]
        parts = group_of_rows(len(outputs), groups)
        return torch.stack([self._part_loss(outputs, targets, parts == group) for group in range(groups)])

    def _part_loss(self, outputs: Tensor, targets: Nested, chosen: Tensor) -> Tensor:
        rows = chosen.nonzero()[:, 0]
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        return _measured(self.loss, "loss", outputs[part], select(targets, part))

    def batch_metric(self, outputs: Tensor, targets: Nested) -> Tensor:
        """The metric of a batch, where it was computed: a mean, or statistics for `Metric.finish`."""
        values = _measured(self.metric.function, self.metric.name, outputs, targets, self.metric.finish is None)
        return values.mean() if self.metric.finish is None else values

    def mean_metric(self, outputs: Tensor, targets: Nested) -> float:
        """The metric of a batch as a number."""
        values = self.batch_metric(outputs, targets)
        return float(values) if self.metric.finish is None else finished(self.metric.finish, values)

    def score(self, outputs: Tensor, targets: Nested) -> Score:
        """What these outputs are worth. Label maps weigh as many as they have labelled pixels, other examples one."""
        maps = is_label_map(outputs, targets)
        weights = wide(labelled(targets).sum(1)) if maps else torch.ones(len(outputs), device=outputs.device)
        finish = self.metric.finish
        values = _measured(self.metric.function, self.metric.name, outputs, targets, finish is None)
        return Score(
            _weighted(_measured(self.loss, "loss", outputs, targets), weights),
            _weighted(values, weights).float() if finish is None else values,
            wide(weights.sum()),
            confusion(outputs, targets) if maps else None,
            finish,
        )


def is_label_map(outputs: Tensor, targets: Nested) -> bool:
    """Whether outputs are scores N×classes×H×W of pixels and targets their class numbers N×H×W."""
    if not isinstance(targets, Tensor):
        return False
    return outputs.dim() == 4 and targets.dim() == 3 and not targets.is_floating_point()


def _measured(function: Measure, what: str, outputs: Tensor, targets: Nested, by_example: bool = True) -> Tensor:
    """What a loss or metric gives: a value per example, or one; statistics of any shape if not `by_example`."""
    try:
        value: object = function(outputs, targets)
    except (UserError, Interrupted):
        raise
    except Exception as error:  # a user's function may raise anything
        shapes = tuple(outputs.shape), tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
        raise UserError(
            f"the {what} failed on outputs of shape {shapes[0]} and targets of shape {shapes[1]} "
            f"({type(error).__name__}: {reason(error)}); make the network's output and the targets fit it"
        ) from error
    if isinstance(value, int | float):
        value = torch.tensor(value, device=outputs.device)
    if not isinstance(value, Tensor):
        raise UserError(f"the {what} gave a {type(value).__name__}; return a tensor: a value per example, or one mean")
    if by_example and value.dim() and tuple(value.shape) != (len(outputs),):
        raise UserError(
            f"the {what} gave a tensor of shape {tuple(value.shape)} for {len(outputs)} examples; "
            "return a value per example, or one mean"
        )
    return value if value.is_floating_point() or not by_example else value.float()


def _checked_outputs(outputs: object, inputs: Nested) -> Tensor:
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != rows(inputs):
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise UserError(f"forward() gave {shape} for {rows(inputs)} examples; return one tensor with a row per example")
    return outputs


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    if values.shape == weights.shape:
        return wide((values * weights).sum())
    return wide(values.mean()) * wide(weights.sum())


@functools.lru_cache(maxsize=64)
def _groups_on(device: torch.device, batch: int, groups: int) -> Tensor:
    """The group of each example, made once and kept on the device."""
    return group_of_rows(batch, groups).to(device)


def group_means(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """The mean of per-example values in each group, given every example's group."""
    totals, sizes = (values.new_zeros(groups).index_add_(0, group, part) for part in (values, torch.ones_like(values)))
    return totals / sizes
