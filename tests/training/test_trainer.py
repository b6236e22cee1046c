"""The trainer: what a step does, which steps are taken, what is recorded, and when it gives up."""

import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.data.feeds import make_feed
from budgetnet.errors import Diverged, Interrupted
from budgetnet.records.records import Kept
from budgetnet.training.callbacks import Callback
from budgetnet.training.fits import Course, Fit
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer
from tests.small_runs import vectors

STEPS = 5
"""Of an epoch: 160 examples in batches of 32."""


class State:
    """The least that a checkpoint holds."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit

    def state_dict(self) -> dict[str, Any]:
        return {"step": self.fit.step, "weights": dict(self.fit.module.state_dict())}


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)


def make(**options: Any) -> tuple[Trainer, Fit]:
    torch.manual_seed(0)
    feed = make_feed(vectors(160), 32, 0)
    trainer = Trainer(Task(), feed, make_feed(vectors(64, 1), 64, 0), sgd, **options)
    return trainer, trainer.begin(nn.Linear(6, 3))


def course(steps: int = 8, **options: Any) -> Course:
    return Course("finish", 0, steps, lambda progress: 0.1 * (1 - progress), **options)


def by_hand(steps: int) -> dict[str, Tensor]:
    """The same training in plain torch."""
    torch.manual_seed(0)
    model, feed = nn.Linear(6, 3), make_feed(vectors(160), 32, 0)
    optimizer = sgd(model)
    batches = [batch for epoch in range(2) for batch in feed.training(epoch)]
    for number, (inputs, targets) in enumerate(batches[:steps]):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - number / steps)
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return dict(model.state_dict())


def test_a_fit_is_what_plain_torch_does() -> None:
    trainer, fit = make()
    trainer.fit(course(), fit, State(fit))
    assert fit.step == 8
    for name, value in by_hand(8).items():
        assert torch.allclose(fit.module.state_dict()[name], value, atol=1e-6)


def test_records_come_at_the_beginning_of_the_phase_at_steps_and_at_the_end_of_epochs() -> None:
    kept = Kept()
    trainer, fit = make(sink=kept)
    trainer.fit(course(about={"start": "equal"}), fit, State(fit))
    assert [(r.kind, r.step) for r in kept.records if r.kind != "step"] == [("phase", 0), ("epoch", 5), ("epoch", 8)]
    assert kept.records[0].values == {"epochs": 8 / STEPS, "steps": 8, "start": "equal"}
    assert [r.step for r in kept.records if r.kind == "step"] == list(range(1, 9))
    assert all(math.isfinite(r.values["validation_loss"]) for r in kept.records if r.kind == "epoch")


def test_a_fit_goes_on_from_its_step_with_the_same_batches() -> None:
    calls = iter(range(100))
    trainer, fit = make(should_stop=lambda: next(calls) == 3)
    saved: list[dict[str, Any]] = []
    trainer.save = lambda state: saved.append(copy.deepcopy(state))
    with pytest.raises(Interrupted):
        trainer.fit(course(), fit, State(fit))
    assert [state["step"] for state in saved] == [4]
    assert fit.step == 4
    trainer.fit(course(), fit, State(fit))
    assert all(torch.allclose(fit.module.state_dict()[name], value, atol=1e-6) for name, value in by_hand(8).items())


def test_a_module_that_saw_batches_before_gets_the_following_ones() -> None:
    trainer, fit = make()
    seen: list[Tensor] = []
    fit.module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]) if module.training else None)
    trainer.fit(course(3, seen=4, offset=9, total=20), fit, State(fit))
    expected = [inputs for epoch in range(2) for inputs, _ in trainer.train.training(epoch)][4:7]
    assert all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))


class Counting(Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def step_ended(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        assert math.isfinite(values["loss"])
        self.seen.append(("step", step))

    def epoch_ended(self, phase: str, step: int, values: Mapping[str, Any]) -> None:
        assert "validation_loss" in values
        self.seen.append(("epoch", step))

    def phase_ended(self, phase: str) -> None:
        self.seen.append((phase, 0))


def test_callbacks_are_called_at_the_end_of_steps_epochs_and_phases() -> None:
    counting = Counting()
    trainer, fit = make(callbacks=[counting])
    trainer.fit(course(6), fit, State(fit))
    trainer.end_phase("finish", State(fit))
    steps = [("step", n) for n in range(1, 6)]
    assert counting.seen == [*steps, ("epoch", 5), ("step", 6), ("epoch", 6), ("finish", 0)]


def test_weights_that_have_diverged_are_not_saved() -> None:
    trainer, fit = make()
    saved: list[dict[str, Any]] = []
    trainer.save = saved.append
    with torch.no_grad():
        fit.module.weight.fill_(1e9)  # type: ignore[operator, union-attr]
    with pytest.raises(Diverged, match="the weights have diverged"):
        trainer.checkpoint(State(fit))
    assert saved == []


def test_a_loss_that_is_no_number_says_the_step_and_the_rate() -> None:
    trainer, fit = make()
    trainer.task = Task(lambda outputs, targets: F.cross_entropy(outputs, targets) * math.nan)
    with pytest.raises(Diverged, match=r"^the loss is nan in step 7 of the finish phase at learning rate 0\.1; "):
        trainer.fit(course(3, offset=7), fit, State(fit))


def test_a_time_limit_ends_a_phase_at_its_share() -> None:
    trainer, fit = make(max_time=0.8, time_shares={"finish": 0.5})
    trainer.fit(course(10**6), fit, State(fit))
    assert 0.3 < trainer.elapsed() < 2
    assert trainer.deadline("finish") == pytest.approx(0.4)


def test_the_state_comes_back() -> None:
    trainer, fit = make()
    trainer.fit(course(3), fit, State(fit))
    state = trainer.state_dict()
    torch.rand(3)
    again, _ = make()
    again.load_state_dict(state)
    assert again.seconds == trainer.seconds
    assert again.elapsed() >= state["elapsed"]
    assert torch.equal(torch.get_rng_state(), state["random"]["cpu"])
