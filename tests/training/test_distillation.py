"""The loss of a taught network, computed by hand; one pass of the teacher a batch; a user's loss that takes both."""

import math

import pytest
import torch
from torch import Tensor, nn

from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.training.distillation import DistilledStep, Teacher, cosine_distance, soft_bce
from budgetnet.training.fits import Course, Fit
from budgetnet.training.metrics import METRICS
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer


class Counted(nn.Module):
    """A teacher that counts its calls and its modes."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(4, outputs)
        self.calls: list[tuple[int, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((len(x), self.training))
        return self.layer(x)


def test_classification_by_hand() -> None:
    outputs, wanted = torch.tensor([[1.0, 2.0], [0.5, -1.0]]), torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    targets = torch.tensor([1, 0])
    teacher = Teacher(nn.Identity(), weight=0.3, temperature=2.0)
    total = 0.0
    for student, master, target in zip(outputs.tolist(), wanted.tolist(), targets.tolist(), strict=True):
        p = [math.exp(v / 2) / sum(math.exp(w / 2) for w in master) for v in master]
        q = [math.exp(v / 2) / sum(math.exp(w / 2) for w in student) for v in student]
        divergence = 4 * sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
        hard = -math.log(math.exp(student[target]) / sum(math.exp(v) for v in student))
        total += 0.7 * hard + 0.3 * divergence
    found = teacher.losses(Task(), outputs, targets, wanted)
    assert found.tolist() == pytest.approx([total / 2], rel=1e-5)


def test_a_segmentation_is_the_mean_over_its_pixels() -> None:
    torch.manual_seed(0)
    outputs, wanted = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    targets = torch.randint(3, (2, 4, 5))
    teacher = Teacher(nn.Identity(), weight=1.0)
    flat = [value.movedim(1, -1).reshape(-1, 3) for value in (outputs, wanted)]
    by_pixel = teacher.losses(Task(), flat[0], targets.flatten(), flat[1])
    assert torch.allclose(teacher.losses(Task(), outputs, targets, wanted), by_pixel)


def test_regression_truth_values_and_embeddings() -> None:
    outputs, wanted, targets = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]]), torch.tensor([[1.0, 1.0]])
    regression = Task.of("mse", METRICS["r2"])
    found = Teacher(nn.Identity(), weight=0.5).losses(regression, outputs, targets, wanted)
    assert found.tolist() == pytest.approx([0.5 * 0.5 + 0.5 * 2.5])
    assert float(cosine_distance(outputs, wanted, 1.0)) == pytest.approx(1 - 8 / (math.sqrt(5) * 4))
    cosine = Teacher(nn.Identity(), kind="cosine", weight=1.0).losses(regression, outputs, targets, wanted)
    assert cosine.tolist() == pytest.approx([1 - 8 / (math.sqrt(5) * 4)])
    p = [1 / (1 + math.exp(-v)) for v in (0.0, 4.0)]
    q = [1 / (1 + math.exp(-v)) for v in (1.0, 2.0)]
    by_hand = -sum(a * math.log(b) + (1 - a) * math.log(1 - b) for a, b in zip(p, q, strict=True)) / 2
    assert float(soft_bce(outputs, wanted, 1.0)) == pytest.approx(by_hand, rel=1e-5)


def test_a_users_loss_may_take_the_teachers_outputs_itself() -> None:
    def loss(outputs: Tensor, targets: Tensor, teacher: Tensor | None = None) -> Tensor:
        return (outputs - (targets if teacher is None else teacher)).abs().sum(1)

    task = Task.of(loss, lambda outputs, targets: outputs[:, 0])
    outputs, targets, wanted = torch.zeros(2, 1), torch.ones(2, 1), torch.full((2, 1), 5.0)
    assert Teacher(nn.Identity()).losses(task, outputs, targets, wanted).tolist() == [5.0]
    assert task.group_losses(outputs, targets, 1).tolist() == [1.0]


def test_the_teacher_runs_once_a_batch_in_evaluation_mode_and_does_not_learn() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    feed, teacher, student = make_feed((x, y), 16, 0), Counted(3), nn.Linear(4, 3)
    before = [p.clone() for p in teacher.parameters()]
    step = DistilledStep(Teacher(teacher.train()))
    trainer = Trainer(Task(), feed, feed, lambda module: torch.optim.SGD(module.parameters(), 0.1), alone=step)

    class State:
        fit: Fit | None = None

        def state_dict(self) -> dict[str, object]:
            return {}

    trainer.fit(Course("finish", 0, 4, lambda progress: 0.1, trainer.alone), trainer.begin(student), State())
    assert teacher.calls == [(16, False)] * 4
    assert all(torch.equal(a, b) for a, b in zip(before, teacher.parameters(), strict=True))
    assert all(p.grad is None for p in teacher.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [({"kind": "best"}, "kl, bce"), ({"weight": 1.5}, "0 to 1"), ({"temperature": 0.0}, "above zero")],
)
def test_settings_out_of_range_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Teacher(nn.Identity(), **options)  # type: ignore[arg-type]


def test_a_teacher_of_another_task_is_refused() -> None:
    with pytest.raises(UserError, match="same task"):
        Teacher(nn.Identity()).losses(Task(), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), torch.zeros(2, 4))
