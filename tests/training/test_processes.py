"""Two processes hold the same weights and Γ, to the bit; a run whose process was killed goes on as if it had not been.

The processes are forked and talk over gloo, on one thread each.
"""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from budgetnet.cli import main
from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.training.device import Device
from budgetnet.training.processes import Processes
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Course, Step, Trainer
from tests.small_runs import TINY, forked, make_runner, same_run, short, vectors
from tests.training.test_trainer import State, sgd

LIMIT = 240
"""Seconds after which a child ends itself: nothing may hang."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started(work: Callable[[], None], count: int = 2) -> list[int]:
    """Child processes that do the same work as the ranks of one group, as torchrun would set them up."""
    port, children = free_port(), []
    for rank in range(count):

        def ranked(rank: int = rank) -> None:
            group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_PORT": port}
            os.environ.update({name: str(value) for name, value in group.items()})
            os.environ.update({"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RUN_ID": "test"})
            work()

        children.append(forked(ranked, LIMIT))
    return children


def finished(children: list[int]) -> list[int]:
    """Waits for children, and returns how each ended: its signal, or 0."""
    return [os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0 for _, status in (os.waitpid(c, 0) for c in children)]


def joined() -> Device:
    return Device(processes=Processes.joined())


def together(tmp_path: Path, work: Callable[[Device], Any]) -> list[Any]:
    """What some work gives in each of two processes."""

    def saving() -> None:
        device = joined()
        found = work(device)
        torch.save(found, tmp_path / f"{device.processes.rank}.pt")
        distributed.destroy_process_group()

    assert finished(started(saving)) == [0, 0]
    return [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]


def test_all_processes_have_the_same_weights_and_distribution_after_every_step(tmp_path: Path) -> None:
    def searched(device: Device) -> dict[str, Any]:
        seen: list[Tensor] = []
        gates: list[Tensor] = []
        runner = make_runner(recipe=short(batch_size=32, groups=4), device=device)
        policy = runner.state.searching
        learn, sample = policy._learn, policy.distribution.sample

        def watched(trial: Any) -> None:
            learn(trial)
            seen.append(policy.distribution.logits.detach().clone())

        def drawn(*args: Any, **options: Any) -> Any:
            draw = sample(*args, **options)
            gates.append(draw.gates)
            return draw

        policy._learn, policy.distribution.sample = watched, drawn  # type: ignore[method-assign]
        outcome = runner.run()
        return {"logits": seen, "gates": gates[:5], "weights": dict(outcome.model.state_dict())}

    one, other = together(tmp_path, searched)
    assert len(one["logits"]) == 10
    assert all(torch.equal(a, b) for a, b in zip(one["logits"], other["logits"], strict=True))
    assert not torch.equal(one["logits"][0], one["logits"][-1])
    assert any(not torch.equal(a, b) for a, b in zip(one["gates"], other["gates"], strict=True)), "gates of their own"
    assert list(one["weights"]) == list(other["weights"])
    assert all(torch.equal(one["weights"][name], other["weights"][name]) for name in one["weights"])


def test_two_processes_compute_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    def trained(device: Device) -> dict[str, Tensor]:
        torch.manual_seed(0)
        trainer = Trainer(Task(), make_feed(vectors(160), 32, 0), make_feed(vectors(64, 1), 64, 0), sgd, device)
        fit = trainer.begin(nn.Linear(6, 3))
        trainer.fit(Course("finish", 0, 8, lambda progress: 0.1, Step()), fit, State(fit))
        return dict(fit.module.state_dict())

    alone = trained(Device())
    for found in together(tmp_path, trained):
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value)


def test_parameters_that_no_process_used_get_no_gradient(tmp_path: Path) -> None:
    def averaged(device: Device) -> list[Tensor | None]:
        rank = device.processes.rank
        module = nn.ModuleList([nn.Linear(2, 1, bias=False) for _ in range(3)])
        with torch.no_grad():
            for part in module:
                part.weight.fill_(1.0)  # type: ignore[operator, union-attr]
        inputs = torch.tensor([[1.0, 2.0]]) * (rank + 1)
        (module[0](inputs) if rank else module[0](inputs) + module[1](inputs)).sum().backward()
        assert device.processes.average_step(module, [])
        return [part.weight.grad for part in module]  # type: ignore[union-attr, misc]

    for first, second, third in together(tmp_path, averaged):
        torch.testing.assert_close(first, torch.tensor([[1.5, 3.0]]))
        torch.testing.assert_close(second, torch.tensor([[0.5, 1.0]]))
        assert third is None


def test_shares_are_equal_and_too_small_a_batch_is_refused() -> None:
    batch = torch.arange(7), torch.arange(7) * 2
    parts = [Processes(rank, 3).share(batch) for rank in range(3)]
    assert [part[0].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert [part[1].tolist() for part in parts] == [[0, 2], [4, 6], [8, 10]]
    assert Processes().share(batch) is batch
    with pytest.raises(UserError, match="8 processes cannot share a batch of 7"):
        Processes(0, 8).share(batch)


LONGER = (*TINY[:4], "--epochs", "6", "--batch-size", "64", "--quiet", "--device", "cpu", "--threads", "1")


def command(out: Path, *more: str) -> Callable[[], None]:
    return lambda: os._exit(main(["search", *LONGER, "--out", str(out), *more]))


def test_a_killed_process_ends_the_run_which_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    started_whole = started(command(whole))
    assert finished(started_whole) == [0, 0]
    first, second = started(command(broken))
    records = broken / "records.jsonl"
    deadline = time.monotonic() + LIMIT
    while not (records.exists() and '"phase": "race"' in records.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(second, signal.SIGKILL)
    clock = time.monotonic()
    assert finished([first, second]) == [0, signal.SIGKILL], "the other one ends by itself"
    assert time.monotonic() - clock < 60
    assert not (broken / "summary.json").exists()
    assert finished(started(command(broken, "--resume"))) == [0, 0]
    same_run(whole, broken)


def test_one_process_of_torchrun_gives_the_bits_of_none(tmp_path: Path) -> None:
    quick = (*TINY, "--device", "cpu", "--threads", "1")
    plain, run = tmp_path / "plain", tmp_path / "torchrun"
    assert finished([forked(lambda: os._exit(main(["search", *quick, "--out", str(plain)])), LIMIT)]) == [0]
    assert finished(started(lambda: os._exit(main(["search", *quick, "--out", str(run)])), 1)) == [0]
    same_run(plain, run)


def test_another_number_of_processes_goes_on_from_the_same_state(tmp_path: Path) -> None:
    out = tmp_path / "run"
    children = started(command(out))
    records = out / "records.jsonl"
    deadline = time.monotonic() + LIMIT
    while not (records.exists() and '"phase": "race"' in records.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(children[1], signal.SIGKILL)
    finished(children)
    assert finished(started(command(out, "--resume"), 1)) == [0]
    assert (out / "certificate.json").exists()


def test_a_refusal_of_the_first_process_reaches_all(tmp_path: Path) -> None:
    def refused(device: Device) -> str:
        def fail() -> None:
            raise UserError("the folder is taken; choose another")

        with pytest.raises(UserError) as caught:
            device.processes.from_first(fail)
        return str(caught.value)

    assert together(tmp_path, refused) == ["the folder is taken; choose another"] * 2


def test_the_metric_of_a_step_is_that_of_all_shares(tmp_path: Path) -> None:
    def observed(device: Device) -> list[float]:
        torch.manual_seed(0)
        found: list[float] = []
        trainer = Trainer(Task(), make_feed(vectors(160), 32, 0), make_feed(vectors(64, 1), 64, 0), sgd, device)
        fit = trainer.begin(nn.Linear(6, 3))
        seen = Course("finish", 0, 2, lambda p: 0.1, observe=lambda values, p: found.append(values["loss"]))
        trainer.fit(seen, fit, State(fit))
        return found

    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    inputs, targets = next(make_feed(vectors(160), 32, 0).training(0))
    expected = float(F.cross_entropy(model(inputs), targets).detach())
    one, other = together(tmp_path, observed)
    assert one == other
    assert one[0] == pytest.approx(expected, rel=1e-6)
