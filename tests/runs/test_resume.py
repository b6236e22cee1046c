"""Going on with a run: only with what it was started with, from the newest checkpoint that fits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from budgetnet.budgets.budget import parse_all
from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.runs.execute import Options, execute
from budgetnet.runs.job import Job
from budgetnet.runs.resume import fingerprint
from budgetnet.training import checkpoint
from tests.runs.test_execute import QUIET, interrupted, make_job
from tests.small_runs import TINY, mlp, run_cli, same_run, short, vectors


def other_seed() -> Job:
    job = make_job()
    return replace(job, config=replace(job.config, seed=7))


def other_data() -> Job:
    return replace(make_job(), train=make_feed(vectors(160, 5), 32, 0))


def other_network() -> Job:
    net = mlp(4)
    return replace(make_job(), net=net, budgets=parse_all(["macs<=60%"], net))


CHANGES: dict[str, Callable[[], Job]] = {
    "seed": other_seed,
    "data": other_data,
    "space": other_network,
    "budgets": lambda: make_job(budget="macs<=61%"),
    "recipe": lambda: make_job(short(lr=0.1)),
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "stopped"
    interrupted(out, 13)
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    execute(make_job(), out, QUIET)
    return out


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_does_not_go_on_with_other_settings(stopped: Path, tmp_path: Path, what: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=rf"cannot go on: its {what} was .* and is now .*; give what it was"):
        execute(CHANGES[what](), out, Options(quiet=True, resume=True))
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_fingerprint_is_that_of_the_job_and_not_of_the_process() -> None:
    assert fingerprint(make_job()) == fingerprint(make_job())
    job = make_job()
    assert fingerprint(replace(job, config=replace(job.config, threads=3, max_time=9.0))) == fingerprint(job)


def test_a_lost_configuration_is_refused(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    (out / "config.json").unlink()
    with pytest.raises(UserError, match=r"has checkpoints and no config\.json"):
        execute(make_job(), out, Options(quiet=True, resume=True))
    assert not (out / "config.json").exists()


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no phase": lambda state: {k: v for k, v in state.items() if k != "phase"},
    "unknown phase": lambda state: {**state, "phase": "holiday"},
    "other shape": lambda state: {**state, "policy": {**state["policy"], "logits": torch.zeros(3)}},
    "no net": lambda state: {**state, "net": {"odd": torch.zeros(2)}},
    "text": lambda state: {**state, "trainer": "clock"},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_content_that_does_not_fit_is_damaged_and_the_one_before_is_used(
    stopped: Path, whole: Path, tmp_path: Path, damage: str
) -> None:
    out, said = tmp_path / "run", list[str]()
    shutil.copytree(stopped, out)
    newest = sorted((out / "checkpoints").iterdir())[-1]
    state, _ = checkpoint.load_latest(out / "checkpoints")
    newest.unlink()
    checkpoint.save(out / "checkpoints", state["number"], DAMAGES[damage](state))
    execute(make_job(), out, Options(quiet=True, resume=True, say=said.append))
    assert sum("damaged and was passed over" in line for line in said) == 1
    same_run(whole, out)


def test_a_folder_that_is_deleted_under_a_run_ends_it_with_a_sentence(tmp_path: Path) -> None:
    calls = iter(range(10_000))

    def delete() -> bool:
        if next(calls) == 9:
            shutil.rmtree(tmp_path / "run")
        return False

    with pytest.raises(UserError, match="was deleted or emptied while the run was at work"):
        execute(make_job(), tmp_path / "run", Options(quiet=True, should_stop=delete))
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_report_that_was_not_written_is_written_by_resume(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ("search", *TINY, "--budget", "macs<=60%", "--out", tmp_path / "run")
    assert run_cli(capsys, *options)[0] == 0
    (tmp_path / "run" / "report.html").unlink()
    assert run_cli(capsys, "search", "--out", tmp_path / "run", "--resume")[0] == 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000


def test_a_hang_up_saves_like_the_end_of_a_job(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "budgetnet", "search", *TINY[:4], "--epochs", "400", "--batch-size", "64"]
    process = subprocess.Popen(
        [*command, "--quiet", "--out", str(tmp_path / "run")], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    records = tmp_path / "run" / "records.jsonl"
    deadline = time.monotonic() + 60
    while not (records.exists() and records.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 130
    state, corrupt = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert corrupt == []
    assert state["fingerprint"]["seed"] == "0"
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["epochs"] == 400
