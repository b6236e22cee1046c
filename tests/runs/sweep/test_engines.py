"""Sweeps as real processes, killed and interrupted, on this machine and on a Dask cluster: the same table each time."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import budgetnet
from budgetnet.errors import UserError
from budgetnet.runs.config import Config
from budgetnet.runs.sweep import local_engine
from budgetnet.runs.sweep.processes import cores
from tests.small_runs import same_run
from tests.sweeps import RUN, alive, begun, children, running, said, start_sweep, timeless_table, wait_until

SWEEP = (*RUN, "--budgets", "macs<=60%", "--seeds", "0", "1")
NAMES = ("macs-60pct_fast_seed-0", "macs-60pct_fast_seed-1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nobody disturbed."""
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    assert start_sweep(out, *SWEEP).wait(300) == 0, said(out).read_text()
    return out


def same_sweep(one: Path, other: Path) -> None:
    assert timeless_table(one) == timeless_table(other)
    for name in NAMES:
        same_run(one / name, other / name)


def test_a_sweep_ends_with_a_table_and_test_scores_of_the_front_alone(whole: Path) -> None:
    table = json.loads((whole / "table.json").read_text())
    assert [row["run"] for row in table] == list(NAMES)
    assert any(row["front"] for row in table)
    for row in table:
        summary = json.loads((whole / row["run"] / "summary.json").read_text())
        assert row["met"]
        assert row["test"] == summary["test_accuracy"]
        assert (row["test"] is not None) == row["front"]
        assert (row["validation"], row["value"]) == (summary["validation_accuracy"], summary["macs"])
        assert "sweep --space" in json.loads((whole / row["run"] / "config.json").read_text())["command"]


def test_interrupted_killed_and_robbed_of_a_child_it_ends_with_the_same_table(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "disturbed"
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        sweep = start_sweep(out, *SWEEP)
        wait_until(lambda sweep=sweep: begun(out) and children(sweep.pid))
        orphans = children(sweep.pid)
        sweep.send_signal(number)
        assert sweep.wait(60) == code, said(out).read_text()
        wait_until(lambda orphans=orphans: not any(map(alive, orphans)), limit=25)
        assert not (out / "table.json").exists()
    assert len(list(out.glob("*/summary.json"))) < 2, "nothing was disturbed"
    sweep = start_sweep(out, *SWEEP)
    (child, *_) = wait_until(lambda: begun(out) and children(sweep.pid))
    os.kill(child, signal.SIGKILL)
    first = wait_until(lambda: list(out.glob("*/summary.json")))[0]
    assert json.loads(first.read_text())["test_accuracy"] is None, "test data were looked at before the selection"
    assert sweep.wait(300) == 0, said(out).read_text()
    assert "Traceback" not in said(out).read_text()
    same_sweep(whole, out)


def test_one_run_that_is_refused_and_one_that_breaks_do_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("import os\n\ndef leaving(net):\n    os._exit(3)\n")
    (tmp_path / "plan.toml").write_text(
        f'space = "{RUN[1]}"\ndata = "{RUN[3]}"\nepochs = 1\nbatch-size = 64\n'
        '[[runs]]\nbudgets = ["macs<=1%", "gone:leaving<=3"]\n[[runs]]\narchitectures = ["full"]\n'
    )
    out = tmp_path / "out"
    assert start_sweep(out, "plan.toml", "--cost", "gone:leaving", cwd=tmp_path).wait(300) == 1
    rows = {row["run"]: row for row in json.loads((out / "table.json").read_text())}
    assert [row["state"] for row in rows.values()] == ["refused", "failed", "finished"]
    assert rows["full_fast_seed-0"]["test"] is not None
    assert rows["full_fast_seed-0"]["front"] is None
    for row, sentence in zip(rows.values(), ("cannot be met", "ended with 3"), strict=False):
        assert sentence in row["message"]
        assert sentence in json.loads((out / row["run"] / "failure.json").read_text())["message"]
        assert f"{row['run']} {row['state']}: " in said(out).read_text()


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dask")
    file = folder / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    with running(["-m", "distributed.cli.dask_scheduler", *options], folder / "log.txt"):
        wait_until(lambda: file.exists() and file.read_text().endswith("}"))
        yield json.loads(file.read_text())["address"]


def worker(address: str) -> list[str]:
    return ["-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]


def test_a_dask_sweep_that_loses_a_worker_loses_nothing(whole: Path, scheduler: str, tmp_path: Path) -> None:
    out, log = tmp_path / "cluster", tmp_path / "workers.txt"
    with running(worker(scheduler), log) as one, running(worker(scheduler), log) as two:
        wait_until(lambda: log.read_text().count("Registered to") == 2)
        sweep = start_sweep(out, *SWEEP, "--engine", "dask", "--address", scheduler)
        wait_until(lambda: begun(out) or sweep.poll() is not None)
        busy = next(process for process in (one, two) if children(process.pid))
        orphans = children(busy.pid)
        busy.kill()
        wait_until(lambda: not any(map(alive, orphans)), limit=25)
        assert sweep.wait(300) == 0, said(out).read_text() + log.read_text()
    same_sweep(whole, out)


def test_a_worker_of_another_version_is_refused_before_anything_runs(scheduler: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(Path(budgetnet.__file__).parent, other / "budgetnet", ignore=shutil.ignore_patterns("__pycache__"))
    package = other / "budgetnet" / "__init__.py"
    package.write_text(package.read_text().replace(f'"{budgetnet.__version__}"', '"9.9.9"'))
    out, log = tmp_path / "refused", tmp_path / "worker.txt"
    with running(worker(scheduler), log, PYTHONPATH=str(other)):
        wait_until(lambda: "Registered to" in log.read_text())
        sweep = start_sweep(out, *SWEEP, "--engine", "dask", "--address", scheduler)
        assert sweep.wait(120) == 2
    assert f"has budgetnet 9.9.9 (installed as {budgetnet.__version__})" in said(out).read_text()
    assert not list(out.glob("*/config.json"))


def test_a_scheduler_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    out = tmp_path / "nobody"
    assert start_sweep(out, *SWEEP, "--engine", "dask", "--address", "tcp://127.0.0.1:9").wait(120) == 2
    sentence = said(out).read_text()
    assert sentence.startswith("error: no Dask scheduler answers at tcp://127.0.0.1:9")
    assert sentence.count("\n") == 1


def test_cores_are_divided_and_never_given_twice() -> None:
    runs = [Config(seed=seed) for seed in range(3 * cores())]
    engine = local_engine(runs)
    assert (engine.slots, engine.threads) == (cores(), 1)
    assert (local_engine(runs, 1).slots, local_engine(runs, 1).threads) == (1, cores())
    assert local_engine(runs[:1]).threads == cores()
    for workers in (0, -1, cores() + 1):
        with pytest.raises(UserError, match="do not fit"):
            local_engine(runs, workers)
    with pytest.raises(UserError, match="more than the"):
        local_engine([Config(threads=cores() + 1)])
