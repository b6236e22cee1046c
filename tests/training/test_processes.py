"""Two processes hold the same weights and Γ, to the bit; a run whose process was killed goes on as if it had not been.

Ranks are fresh processes that torchrun starts (`tests.training.ranks`), over gloo, with one thread each. A start takes
seconds, so that the checks of a module share one, which leaves its findings in files.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.cli import main
from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.training.device import Device
from budgetnet.training.processes import Processes
from budgetnet.training.tasks import Task
from tests.small_runs import TINY, same_run, vectors
from tests.training import ranks

ROOT = Path(__file__).parents[2]
LIMIT = 400
"""Seconds after which a start is given up: nothing may hang. A start takes ten on an idle machine."""
QUICK = (*TINY, "--device", "cpu", "--threads", "1")


def started(*arguments: object, **environment: object) -> subprocess.Popen[str]:
    """A Python process of its own session."""
    paths = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in environment.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ended(count: int, *arguments: object, restarts: int = 0) -> tuple[int, str]:
    """The exit code of `torchrun` and everything that was printed; its ranks end with it whatever happens."""
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", count, "--max-restarts", restarts)
    rendezvous = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
    process = started(*launcher, *rendezvous, "-m", "tests.training.ranks", *arguments)
    try:
        said, _ = process.communicate(timeout=LIMIT)
        return process.returncode, said
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun ends its ranks
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def ended_unwatched(count: int, *arguments: object) -> list[tuple[int, str]]:
    """Exit codes and words of ranks without torchrun, which ends the others when one is gone."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    all_ranks = [
        started(
            *("-m", "tests.training.ranks", *arguments),
            **{**shared, "RANK": rank, "LOCAL_RANK": rank, "TORCHELASTIC_RESTART_COUNT": 0},
        )
        for rank in range(count)
    ]
    try:
        words = [rank.communicate(timeout=LIMIT)[0] for rank in all_ranks]
    finally:
        for rank in all_ranks:
            rank.kill()
    return [(rank.returncode, said) for rank, said in zip(all_ranks, words, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks found, and the folder of a whole run."""
    place = tmp_path_factory.mktemp("ranks")
    code, said = ended(2, "checks", place)
    assert code == 0, said
    return place


@pytest.fixture(scope="module")
def found(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_all_ranks_have_the_same_weights_and_distribution_after_every_step(found: list[dict[str, Any]]) -> None:
    one, other = (part["searched"] for part in found)
    assert len(one["logits"]) == 10
    assert all(torch.equal(a, b) for a, b in zip(one["logits"], other["logits"], strict=True))
    assert not torch.equal(one["logits"][0], one["logits"][-1])
    assert any(not torch.equal(a, b) for a, b in zip(one["gates"], other["gates"], strict=True)), "gates of their own"
    assert torch.equal(one["architecture"], other["architecture"])
    assert equal(one["weights"], other["weights"])


def test_two_ranks_compute_the_gradient_of_the_whole_batch(found: list[dict[str, Any]]) -> None:
    alone = ranks.trained(Device(), ranks.linear())
    for part in found:
        for name, value in alone.items():
            torch.testing.assert_close(part["linear"][name], value)


def test_synchronised_batch_norm_is_that_of_the_whole_batch(found: list[dict[str, Any]]) -> None:
    alone = ranks.trained(Device(), ranks.model())
    one, other = (part["synchronised"] for part in found)
    assert equal(one, other)
    for name, value in alone.items():
        torch.testing.assert_close(one[name], value, rtol=1e-4, atol=1e-5)
    local = found[0]["local"]
    assert equal(local, found[1]["local"]), "local statistics are averaged"
    assert not torch.allclose(local["1.running_var"], alone["1.running_var"], rtol=1e-3)


def test_parameters_that_no_rank_used_get_no_gradient(found: list[dict[str, Any]]) -> None:
    for part in found:
        first, second, third = part["averaged"]
        torch.testing.assert_close(first, torch.tensor([[1.5, 3.0]]))
        torch.testing.assert_close(second, torch.tensor([[0.5, 1.0]]))
        assert third is None


def test_the_loss_and_the_metric_of_a_step_are_those_of_all_shares(found: list[dict[str, Any]]) -> None:
    model = ranks.linear()
    inputs, targets = next(make_feed(vectors(160), 32, 0).training(0))
    outputs = model(inputs).detach()
    expected = float(F.cross_entropy(outputs, targets)), float((outputs.argmax(1) == targets).double().mean())
    one, other = (part["observed"] for part in found)
    assert one == other
    assert one[:2] == pytest.approx(expected, rel=1e-6)
    statistics = Task.of("cross_entropy", "mean_iou")
    whole = float(statistics.metric.finish(statistics.metric.function(outputs, targets)))  # type: ignore[misc]
    assert found[0]["statistics"][1] == found[1]["statistics"][1] == pytest.approx(whole)


def test_ranks_share_an_evaluation_out(found: list[dict[str, Any]]) -> None:
    alone = ranks.scored(Device())
    for part in found:
        assert part["scored"] == pytest.approx(alone, rel=1e-6)


def test_random_numbers_of_a_step_are_the_rank_s_own_and_follow_from_its_number(found: list[dict[str, Any]]) -> None:
    one, other = (part["dropped"] for part in found)
    drawn = [*one, *other]
    assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


def test_an_error_of_the_first_rank_reaches_all(found: list[dict[str, Any]]) -> None:
    assert [part["refused"] for part in found] == ["the folder is taken; choose another"] * 2


def test_ranks_that_hold_different_weights_are_refused(found: list[dict[str, Any]]) -> None:
    assert all("hold different weights" in part["differing"] and "--resume" in part["differing"] for part in found)


def test_all_ranks_start_from_the_weights_of_the_first(found: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    expected = torch.nn.Linear(3, 3).weight.detach()
    assert all(torch.equal(part["same"], expected) for part in found)


def test_the_clock_of_the_first_rank_says_when_a_cost_is_no_longer_asked(found: list[dict[str, Any]]) -> None:
    one, other = (part["hurried"] for part in found)
    assert one == other == [9.0] * 6, "the cost of the full network"


def test_a_race_is_run_one_racer_in_a_rank_with_the_losses_of_one_process(found: list[dict[str, Any]]) -> None:
    one, other = (part["raced"] for part in found)
    assert one == other
    assert len(one) >= 5
    assert one == pytest.approx(ranks.raced(Device()), rel=1e-6)


def test_records_of_all_racers_are_written_by_the_first_rank(found: list[dict[str, Any]]) -> None:
    records = found[0]["searched"]["records"]
    racers = [step for kind, phase, step, _ in records if (kind, phase) == ("racer", "race")]
    assert racers == sorted(set(racers))
    assert len(racers) >= 5
    steps = [step for kind, phase, step, _ in records if (kind, phase) == ("step", "race")]
    assert steps == sorted(set(steps))
    assert steps[-1] == racers[-1], "every turn has its records"


def test_ranks_work_apart_where_few_of_them_are_idle() -> None:
    assert [Processes(0, 2).better_apart(racers) for racers in (1, 2, 3, 4, 5)] == [False, True, True, True, True]
    assert [Processes(0, 4).better_apart(racers) for racers in (2, 3, 4, 5, 6)] == [False, True, True, False, True]
    assert not Processes().better_apart(4)


def test_shares_are_equal_and_too_small_a_batch_is_refused() -> None:
    batch = torch.arange(7), torch.arange(7) * 2
    parts = [Processes(rank, 3).share(batch) for rank in range(3)]
    assert [part[0].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]  # type: ignore[union-attr]
    assert [part[1].tolist() for part in parts] == [[0, 2], [4, 6], [8, 10]]  # type: ignore[union-attr]
    assert Processes().share(batch) is batch
    assert Processes(1, 3).split_up().share(batch) is batch
    with pytest.raises(UserError, match="8 processes cannot share a batch of 7"):
        Processes(0, 8).share(batch)


def test_one_rank_of_torchrun_gives_the_bits_of_none(tmp_path: Path) -> None:
    code, said = ended(1, "run", "none", "search", *QUICK, "--out", tmp_path / "torchrun")
    assert code == 0, said
    assert main(["search", *QUICK, "--out", str(tmp_path / "plain")]) == 0
    same_run(tmp_path / "plain", tmp_path / "torchrun")


def phase_of(run: Path) -> str:
    return (run / "records.jsonl").read_text(encoding="utf-8").splitlines()[-1].split('"phase": "')[1].split('"')[0]


def test_a_stopped_and_twice_killed_run_goes_on_with_the_same_bits(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C in the search; a rank killed in the race; another in the finish, after which torchrun starts all again."""
    run, search = tmp_path / "run", ("search", *ranks.LONGER, "--resume", "--out", tmp_path / "run")
    code, said = ended(2, "run", "stop:search:3", *search)
    assert code != 0, said
    assert "saving the state" in said
    assert phase_of(run) == "search"
    assert any((run / "checkpoints").glob("*.checkpoint"))
    clock = time.monotonic()
    (code, said), (killed, _) = ended_unwatched(2, "run", "kill:race:3", *search)
    assert killed == -signal.SIGKILL
    assert code == 2, said
    assert time.monotonic() - clock < LIMIT / 2, "all ranks end soon after one"
    assert "error: process 0 of 2 has lost another one" in said, said
    assert not (run / "summary.json").exists()
    shutil.copytree(run, tmp_path / "alone")
    code, said = ended(2, "run", "kill:finish:3", *search, restarts=1)
    assert code == 0, said
    same_run(folder / "whole", run)
    assert main(["search", *ranks.LONGER, "--resume", "--out", str(tmp_path / "alone")]) == 0, "one process goes on"
    assert (tmp_path / "alone" / "certificate.json").exists()
