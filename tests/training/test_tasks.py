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
from budgetnet.training.metrics import METRICS, Metric, accuracy, confusion, cross_entropy
from budgetnet.training.tasks import Score, Task

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


VALUES = torch.randn(30, 2, generator=torch.Generator().manual_seed(2))
WANTED = VALUES + 0.3 * torch.randn(30, 2, generator=torch.Generator().manual_seed(3))


def test_named_regression_losses_and_metrics() -> None:
    got, wanted = VALUES.double().numpy(), WANTED.double().numpy()
    expected = {
        "mse": ((got - wanted) ** 2).mean(),
        "mae": np.abs(got - wanted).mean(),
        "r2": np.mean(1 - ((got - wanted) ** 2).sum(0) / ((wanted - wanted.mean(0)) ** 2).sum(0)),
    }
    for name, value in expected.items():
        task = Task.of("mse", name)
        parts = zip(VALUES.split([7, 20, 3]), WANTED.split([7, 20, 3]), strict=True)
        score = functools.reduce(operator.add, (task.score(*part) for part in parts))
        assert score.metric == pytest.approx(value, rel=1e-5), name
        assert score.loss == pytest.approx(expected["mse"], rel=1e-5)
    assert Task.of("mae").group_losses(VALUES, WANTED, 3).tolist() == pytest.approx(
        [np.abs(got - wanted)[i : i + 10].mean() for i in (0, 10, 20)], rel=1e-5
    )


def test_a_column_of_outputs_is_compared_with_its_own_targets() -> None:
    task = Task.of("mse")
    assert task.score(VALUES[:, :1], WANTED[:, 0]).loss == pytest.approx(float((VALUES - WANTED)[:, 0].square().mean()))
    with pytest.raises(UserError, match="gives 2 values for an example, its targets have 1"):
        task.score(VALUES, WANTED[:, 0])


def test_named_binary_and_top5() -> None:
    truth = WANTED > 0
    chance = 1 / (1 + np.exp(-VALUES.double().numpy()))
    expected = -np.where(truth.numpy(), np.log(chance), np.log(1 - chance)).mean()
    for targets in (truth, truth.long(), truth.float()):
        score = Task.of("bce").score(VALUES, targets)
        assert score.loss == pytest.approx(expected, rel=1e-5)
        assert score.metric == pytest.approx(((VALUES.numpy() > 0) == truth.numpy()).mean())
    outputs = torch.randn(40, 9, generator=torch.Generator().manual_seed(4))
    labels = torch.arange(40) % 9
    right = [int(label) in np.argsort(-row)[:5] for row, label in zip(outputs.numpy(), labels, strict=True)]
    assert Task.of(metric="top5").score(outputs, labels).metric == pytest.approx(np.mean(right))


def test_mean_iou_as_the_metric_is_that_of_all_pixels() -> None:
    task = Task.of(metric="mean_iou")
    scores = [task.score(MAPS[i : i + 1], LABELS[i : i + 1]) for i in range(4)]
    whole = functools.reduce(operator.add, scores)
    assert whole.metric == pytest.approx(whole.mean_iou) == pytest.approx(Task().score(MAPS, LABELS).mean_iou)


def test_the_metric_follows_from_the_loss_unless_it_is_given() -> None:
    def own(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0]

    def names(*arguments: object) -> tuple[str, bool]:
        metric = Task.of(*arguments).metric  # type: ignore[arg-type]
        return metric.name, metric.higher_is_better

    assert names() == ("accuracy", True)
    assert names("mse") == ("r2", True)
    assert names("mae") == ("mae", False)
    assert names("bce") == ("binary_accuracy", True)
    assert names(own) == ("loss", False)
    assert names(None, own) == ("own", True)
    assert names("mse", Metric("share", own, format=".1%")) == ("share", True)
    assert all(name == metric.name for name, metric in METRICS.items())


def test_a_forward_pass_of_the_users_own() -> None:
    net = torch.nn.Linear(3, 2)
    task = Task(forward=lambda model, batch: model(batch["x"]) * batch["scale"][:, None])
    inputs = {"x": torch.randn(5, 3), "scale": torch.arange(5.0)}
    torch.testing.assert_close(task.outputs(net, inputs), net(inputs["x"]) * torch.arange(5.0)[:, None])
    with pytest.raises(UserError, match=r"forward\(\) gave \(2,\) for 5 examples"):
        Task(forward=lambda model, batch: model(batch["x"])[0]).outputs(net, inputs)


BAD = {
    "unknown loss": (lambda: Task.of("hinge"), "no loss named 'hinge'"),
    "unknown metric": (lambda: Task.of(None, "f1"), "no metric named 'f1'"),
    "a number": (lambda: Task.of(3), "the loss is int"),  # type: ignore[arg-type]
    "a number as metric": (lambda: Task.of(None, 3), "the metric is int"),  # type: ignore[arg-type]
    "a vector too short": (lambda: Task(lambda o, t: o[:3, 0]).score(OUTPUTS, TARGETS), r"\(3,\) for 7 examples"),
    "a text": (lambda: Task(metric=lambda o, t: "good").score(OUTPUTS, TARGETS), "gave a str"),  # type: ignore[arg-type]
    "shapes that do not fit": (lambda: Task(lambda o, t: o - t[:, None, None]).group_losses(OUTPUTS, TARGETS, 2), "7"),
    "an error": (lambda: Task(lambda o, t: o["x"]).group_losses(OUTPUTS, TARGETS, 2), "the loss failed on outputs"),
}


@pytest.mark.parametrize(("mistake", "words"), BAD.values(), ids=BAD)
def test_mistakes_in_losses_and_metrics_are_said(mistake: Callable[[], object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        mistake()
