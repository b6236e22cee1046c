"""Losses and metrics per example, per group, and of a user's own making."""

import functools
import operator
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.errors import UserError
from budgetnet.training.tasks import Score, Task, accuracy, confusion, cross_entropy

OUTPUTS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 2, 0, 1, 2, 0])
MAPS = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([[[0, 1], [2, 255]], [[255, 255], [255, 255]], [[0, 0], [0, 0]], [[2, 1], [0, 255]]])


def test_cross_entropy_is_per_example() -> None:
    logs = OUTPUTS.log_softmax(1)
    expected = [-float(logs[i, t]) for i, t in enumerate(TARGETS)]
    assert cross_entropy(OUTPUTS, TARGETS).tolist() == pytest.approx(expected)


def test_a_label_map_counts_its_labelled_pixels_alone() -> None:
    logs = MAPS.log_softmax(1)
    for i, value in enumerate(cross_entropy(MAPS, LABELS).tolist()):
        pixels = [(r, c) for r in range(2) for c in range(2) if LABELS[i, r, c] != 255]
        expected = [-float(logs[i, LABELS[i, r, c], r, c]) for r, c in pixels]
        assert value == pytest.approx(sum(expected) / len(expected) if expected else 0.0)
    for i, value in enumerate(accuracy(MAPS, LABELS).tolist()):
        pixels = [(r, c) for r in range(2) for c in range(2) if LABELS[i, r, c] != 255]
        right = [int(MAPS[i, :, r, c].argmax()) == int(LABELS[i, r, c]) for r, c in pixels]
        assert value == pytest.approx(sum(right) / len(right) if right else 0.0)


@pytest.mark.parametrize("groups", [1, 2, 3, 7])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_loss_of_a_group_is_that_of_its_examples(groups: int, reduction: str) -> None:
    task = Task(lambda outputs, targets: F.cross_entropy(outputs, targets, reduction=reduction))
    sizes = [7 // groups + (i < 7 % groups) for i in range(groups)]
    expected, first = [], 0
    for size in sizes:
        part = slice(first, first + size)
        expected.append(float(F.cross_entropy(OUTPUTS[part], TARGETS[part])))
        first += size
    assert task.group_losses(OUTPUTS, TARGETS, groups).tolist() == pytest.approx(expected)


def test_a_loss_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"shape \(7, 3\) for 7 examples"):
        Task(lambda outputs, targets: outputs).group_losses(OUTPUTS, TARGETS, 2)


def batchwise(outputs: torch.Tensor, targets: torch.Tensor, *sizes: int) -> Score:
    """The score of examples that come in batches."""
    task = Task()
    parts = zip(outputs.split(sizes), targets.split(sizes), strict=True)
    return functools.reduce(operator.add, (task.score(*part) for part in parts))


def test_scores_weigh_by_examples() -> None:
    for score in (Task().score(OUTPUTS, TARGETS), batchwise(OUTPUTS, TARGETS, 4, 2, 1)):
        assert score.loss == pytest.approx(float(F.cross_entropy(OUTPUTS, TARGETS)), rel=1e-5)
        assert score.metric == pytest.approx(float((OUTPUTS.argmax(1) == TARGETS).float().mean()))
        assert score.mean_iou is None


def test_scores_of_label_maps_weigh_by_labelled_pixels() -> None:
    inside = LABELS != 255
    loss = F.cross_entropy(MAPS.permute(0, 2, 3, 1)[inside], LABELS[inside])
    right = (MAPS.argmax(1) == LABELS)[inside].float().mean()
    for score in (Task().score(MAPS, LABELS), batchwise(MAPS, LABELS, 1, 3), batchwise(MAPS, LABELS, 3, 1)):
        assert score.loss == pytest.approx(float(loss), rel=1e-5)
        assert score.metric == pytest.approx(float(right))


def iou_by_sets(predicted: np.ndarray, truth: np.ndarray, classes: int) -> float:
    """Mean intersection over union from the sets of pixels of each class."""
    values = []
    for label in range(classes):
        a = {tuple(place) for place in np.argwhere((predicted == label) & (truth != 255))}
        b = {tuple(place) for place in np.argwhere(truth == label)}
        if a | b:
            values.append(len(a & b) / len(a | b))
    return sum(values) / len(values) if values else 0.0


@pytest.mark.parametrize(("classes", "used", "seed"), [(3, 3, 0), (5, 3, 1), (2, 1, 2), (21, 9, 3)])
def test_mean_iou_is_that_of_the_whole_split(classes: int, used: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(6, classes, 7, 5, generator=generator)
    outputs[:, used:] -= 100  # classes that never occur
    targets = torch.randint(used, (6, 7, 5), generator=generator)
    targets[torch.rand(6, 7, 5, generator=generator) < 0.3] = 255
    targets[2] = 255
    expected = iou_by_sets(outputs.argmax(1).numpy(), targets.numpy(), classes)
    assert batchwise(outputs, targets, 2, 1, 3).mean_iou == pytest.approx(expected)
    assert Task().score(outputs, targets).mean_iou == pytest.approx(expected)
    per_image = [iou_by_sets(o.argmax(0).numpy(), t.numpy(), classes) for o, t in zip(outputs, targets, strict=True)]
    assert expected != pytest.approx(sum(per_image) / len(per_image)), "this case tells the two definitions apart"


def test_confusion_counts_truth_in_rows_and_prediction_in_columns() -> None:
    counts = np.zeros((3, 3), int)
    for predicted, true in zip(MAPS.argmax(1).flatten().tolist(), LABELS.flatten().tolist(), strict=True):
        if true != 255:
            counts[true, predicted] += 1
    np.testing.assert_array_equal(confusion(MAPS, LABELS).numpy(), counts)


def test_label_maps_without_a_labelled_pixel_are_worth_nothing() -> None:
    score = Task().score(MAPS, torch.full_like(LABELS, 255))
    assert (score.loss, score.metric, score.mean_iou) == (0.0, 0.0, 0.0)


def test_targets_that_are_no_class_numbers_have_no_iou() -> None:
    task = Task(lambda o, t: (o[:, 0] - t).square().mean((1, 2)), lambda o, t: -(o[:, 0] - t).abs().mean())
    assert task.score(MAPS, torch.zeros(4, 2, 2)).mean_iou is None


@pytest.mark.parametrize("kind", [torch.Tensor.bool, torch.Tensor.int, torch.Tensor.float])
def test_a_metric_may_count_in_any_kind_of_number(kind: Callable[[Tensor], Tensor]) -> None:
    right = OUTPUTS.argmax(1) == TARGETS
    task = Task(metric=lambda outputs, targets: kind((outputs.argmax(1) == targets).float()))
    expected = sum(right.tolist()) / len(TARGETS)
    assert task.mean_metric(OUTPUTS, TARGETS) == pytest.approx(expected)
    assert task.score(OUTPUTS, TARGETS).metric == pytest.approx(expected)
    assert Task(metric=lambda outputs, targets: 0.25).score(OUTPUTS, TARGETS).metric == 0.25  # type: ignore[arg-type, return-value]
