"""Losses and metrics per example, per group, and of a user's own making."""

import pytest
import torch
from torch.nn import functional as F

from budgetnet.errors import UserError
from budgetnet.tasks import Task, accuracy, cross_entropy

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


def test_totals_weigh_by_examples() -> None:
    loss, metric = Task().totals(OUTPUTS, TARGETS)
    assert loss == pytest.approx(float(F.cross_entropy(OUTPUTS, TARGETS, reduction="sum")), rel=1e-5)
    assert metric == pytest.approx(int((OUTPUTS.argmax(1) == TARGETS).sum()))
