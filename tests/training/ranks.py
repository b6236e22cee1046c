"""What the ranks of `test_processes` do, each in a fresh process that torchrun starts.

`python -m tests.training.ranks checks FOLDER` computes everything that is checked and writes it to FOLDER by rank;
`python -m tests.training.ranks run FAULT …` is the command line `budgetnet …` with one accident on the way:
`kill:race:3` ends the last rank before that step of the race, `stop:search:3` is a Ctrl-C in the terminal of torchrun.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from budgetnet.budgets.budget import set_deadline
from budgetnet.cli import main
from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.records.records import Kept
from budgetnet.runs.first import measured_by_first
from budgetnet.strategies.sampling import Sampling
from budgetnet.training.device import Device
from budgetnet.training.evaluation import judge
from budgetnet.training.fits import Course, Step
from budgetnet.training.processes import Processes
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer
from tests.small_runs import TINY, make_runner, mlp, short, vectors
from tests.training.test_trainer import State, sgd

LIMIT = 180
"""Seconds after which a rank ends itself and says where it was: nothing may hang."""
LONGER = (
    *(*TINY[:4], "--recipe", "fast:search_epochs=1", "--epochs", "2", "--batch-size", "32"),
    *("--quiet", "--device", "cpu", "--threads", "1"),
)
"""A search of some seconds, with a race of several racers."""


def linear() -> nn.Module:
    """A network without batch norm, always the same."""
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def model() -> nn.Module:
    """A network with batch norm, always the same."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def trained(device: Device, module: nn.Module, task: Task | None = None, **course: Any) -> dict[str, Tensor]:
    """A module after 8 steps on batches of 32."""
    trainer = Trainer(task or Task(), make_feed(vectors(160), 32, 0), make_feed(vectors(64, 1), 64, 0), sgd, device)
    fit = trainer.begin(module)
    trainer.fit(Course("finish", 0, 8, lambda progress: 0.1, Step(), **course), fit, State(fit))
    return dict(fit.module.state_dict())


def searched(device: Device) -> dict[str, Any]:
    """Γ after every step of a search, gates of its first steps, and the weights of the result."""
    seen: list[Tensor] = []
    gates: list[Tensor] = []
    kept = Kept()
    runner = make_runner(net=mlp(4), recipe=short(batch_size=32, groups=4, racers=4), device=device, sink=kept)
    policy = runner.state.searching
    learn, draw = policy._learn, Sampling.draw

    def watched(trial: Any) -> None:
        learn(trial)
        seen.append(policy.distribution.logits.detach().clone())

    def drawn(*args: Any, **options: Any) -> Any:
        found = draw(*args, **options)
        gates.append(found.gates)
        return found

    policy._learn, Sampling.draw = watched, drawn  # type: ignore[method-assign]
    try:
        outcome = runner.run()
    finally:
        Sampling.draw = draw  # type: ignore[method-assign]
    records = [(r.kind, r.phase, r.step, r.values.get("loss")) for r in kept.records]
    return {
        "logits": seen,
        "gates": gates[:5],
        "weights": dict(outcome.model.state_dict()),
        "architecture": outcome.architecture.gates(),
        "records": records,
    }


def raced(device: Device) -> list[float]:
    """The losses of all turns of a race, and how it was trained."""
    runner = make_runner(recipe=short(batch_size=32, groups=4, racers=4), device=device)
    state, trainer = runner.state, runner.trainer
    choose = next(phase for phase in runner.phases if phase.name == "choose")
    race = next(phase for phase in runner.phases if phase.name == "race")
    state = choose.run(state, trainer)
    assert state.race is not None
    running = state.race
    race.run(state, trainer)
    return [loss for turns in running.losses for loss in turns]


def averaged(device: Device) -> list[Tensor | None]:
    """Gradients of three parts of a module: the second is used by the first rank only, the third by nobody."""
    rank = device.processes.rank
    module = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)])
    with torch.no_grad():
        for part in module:
            part.weight.fill_(1.0)  # type: ignore[operator, union-attr]
    inputs = torch.tensor([[1.0, 2.0]]) * (rank + 1)
    (module[0](inputs) if rank else module[0](inputs) + module[1](inputs)).sum().backward()
    assert device.processes.average_step(module, [])
    return [part.weight.grad for part in module]  # type: ignore[union-attr, misc]


def refused(device: Device) -> str:
    """What every rank hears of an error of the first one."""

    def fail() -> None:
        raise UserError("the folder is taken; choose another")

    try:
        device.processes.from_first(fail)
    except UserError as error:
        return str(error)
    return ""


def observed(device: Device, task: Task | None = None) -> list[float]:
    """Losses and metrics of two steps, as a course hears of them."""
    found: list[float] = []
    name = (task or Task()).metric.name
    trained(
        device,
        linear(),
        task,
        observe=lambda values, progress: found.extend((values["loss"], values[name])),
    )
    return found[:4]


def scored(device: Device) -> tuple[float, float]:
    """Loss and accuracy on 600 examples, of which each rank judges some batches."""
    score = judge(model(), Task(), make_feed(vectors(600, 1), 64, 0).evaluation(), device)
    return score.loss, score.metric


def dropped(device: Device) -> list[Tensor]:
    """Random numbers of two steps: the ranks' own."""
    found: list[Tensor] = []

    class Noise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 6))

        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                found.append(torch.rand(3))
            return x @ self.weight.T

    trained(device, Noise())
    return found[:2]


def hurried(device: Device) -> list[float]:
    """Costs of a user's own after its time, by the first rank's clock, though the others' say something else."""
    runner = make_runner(["tests.small_runs:weigh<=5"])
    budgets = measured_by_first(runner.state.budgets, device.processes)
    set_deadline(budgets, time.monotonic() + (-1 if device.processes.first else 1e6))
    gates = torch.eye(6, dtype=torch.bool) | torch.ones(6, 6, dtype=torch.bool).triu()
    return budgets[0].meter.evaluate(gates).tolist()


def same(device: Device) -> Tensor:
    """Weights of a network that every rank has made with other random numbers."""
    torch.manual_seed(device.processes.rank)
    return device.place(nn.Linear(3, 3)).weight.detach()


def differing(device: Device) -> str:
    """What is said if ranks hold different weights."""
    module = nn.Linear(2, 2)
    nn.init.constant_(module.weight, float(device.processes.rank))
    nn.init.zeros_(module.bias)
    try:
        device.processes.check_same(module)
    except UserError as error:
        return str(error)
    return ""


def checks(folder: Path) -> None:
    """Everything, in one start; then a whole run from the command line in the same group."""
    torch.set_num_threads(1)
    device = Device.chosen("cpu")
    torch.manual_seed(0)
    found: dict[str, Any] = {
        "linear": trained(device, linear()),
        "synchronised": trained(replace(device, synchronised=True), model()),
        "local": trained(device, model()),
        "averaged": averaged(device),
        "refused": refused(device),
        "observed": observed(device),
        "statistics": observed(device, Task.of("cross_entropy", "mean_iou")),
        "scored": scored(device),
        "dropped": dropped(device),
        "hurried": hurried(device),
        "same": same(device),
        "differing": differing(device),
        "raced": raced(device),
        "searched": searched(device),
    }
    torch.save(found, folder / f"{device.processes.rank}.pt")
    code = main(["search", *LONGER, "--out", str(folder / "whole")])
    assert code == 0, code
    Processes.leave()


def broken(fault: str) -> Callable[..., Any]:
    """A training step of the trainer with an accident before one of them, the first time that the run comes there."""
    kind, phase, number = fault.split(":")
    step = Trainer._step
    last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
    asked: list[float] = []

    def faulty(self: Trainer, course: Course, fit: Any, *rest: Any) -> Any:
        here = course.phase == phase and course.offset + fit.step >= int(number)
        if here and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if kind == "kill" and last:
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "stop" and not asked:
                asked.append(time.monotonic())
                if last:
                    os.kill(os.getppid(), signal.SIGINT)
            if kind == "stop" and time.monotonic() < asked[0] + 60:
                time.sleep(0.1)  # the signal is on its way, and the run must not be over before it
        return step(self, course, fit, *rest)

    return faulty


if __name__ == "__main__":
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    if sys.argv[1] == "checks":
        checks(Path(sys.argv[2]))
    else:
        if sys.argv[2] != "none":
            Trainer._step = broken(sys.argv[2])  # type: ignore[method-assign]
        sys.exit(main(sys.argv[3:]))
