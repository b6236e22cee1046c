"""Searches under budgets that a meter measures: certified there, also if it is restarted or gone for a while."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks._recorder import Recorder
from budgetnet.cli import main
from budgetnet.costs import target_memory
from budgetnet.costs.latency import remote
from budgetnet.costs.latency.cost import Effort
from budgetnet.costs.latency.runtimes import Runtime
from tests.meters import TOKEN, Meter, start_meter
from tests.small_runs import run_cli, same_run

cost_module = sys.modules["budgetnet.costs.latency.cost"]
SEARCH = (
    *("search", "--space", "resnet-fabric:width=2,channels=4,groups=2", "--data", "embedded:limit=256,size=8"),
    *("--epochs", "1", "--batch-size", "64", "--quiet"),
)


class Device:
    """A meter that can be stopped and started again on its port, behind a relay with one set of answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.meter: Meter = start_meter(folder)
        self.port = self.meter.address[1]
        self.relay = Recorder(self.meter.address, measured_again=False)
        self.starts: list[threading.Timer] = []

    def start(self) -> None:
        """Starts the meter again."""
        self.meter = start_meter(self.folder, port=self.port)

    def stop(self) -> None:
        """Kills the meter."""
        self.meter.stop()

    def start_after(self, seconds: float) -> None:
        """Starts the meter again after a while."""
        self.starts.append(threading.Timer(seconds, self.start))
        self.starts[-1].start()

    def close(self) -> None:
        """Ends everything."""
        for timer in self.starts:
            timer.join()
        self.relay.close()
        self.stop()

    def budgets(self) -> tuple[str, ...]:
        """60 % of the full network's time on the device, and a limit for its memory."""
        url = self.relay.url
        return "--budget", f"latency(target={url})<=60%", "--budget", f"peak_memory(target={url})<=100MB"


@pytest.fixture(scope="module")
def quick() -> Iterator[pytest.MonkeyPatch]:
    """Fewer and shorter measurements than a user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUDGETNET_METER_TOKEN", TOKEN)
        patch.setattr(Runtime, "samples", 4)
        patch.setattr(Runtime, "fresh", 1)
        patch.setattr(cost_module, "CONTROLS", 2)
        # short measurements on a busy machine differ by more than a user's: networks stay well below the budget
        patch.setattr(cost_module, "HEADROOM", (0.25, 0.25))
        for effort in ("FIT", "CANDIDATE", "CERTIFY"):
            patch.setattr(cost_module, effort, Effort(0.1, 2))
        patch.setattr(target_memory, "SAMPLES", 3)
        patch.setattr(target_memory, "REPEATS", 1)
        yield patch


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory, quick: pytest.MonkeyPatch) -> Iterator[Device]:
    made = Device(tmp_path_factory.mktemp("device"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, device: Device) -> tuple[Path, int]:
    """A search that nothing disturbed, and how many answers it was given."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main([*SEARCH, *device.budgets(), "--out", str(out)]) == 0
    return out, device.relay.answered


def certificate(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "certificate.json").read_text())
    return found


def test_a_search_is_certified_on_the_target_which_the_certificate_names(
    whole: tuple[Path, int], device: Device, capsys: pytest.CaptureFixture[str], quick: pytest.MonkeyPatch
) -> None:
    run, _ = whole
    found = certificate(run)
    assert found["holds"]
    latency, memory = found["budgets"]
    assert 0 < latency["measured"] <= latency["upper_bound"] <= latency["maximum"]
    assert 0 < memory["measured"] <= memory["upper_bound"] <= 100e6
    for entry in (latency, memory):
        assert entry["how"]["target"] == device.relay.url
        assert entry["how"]["machine"]["cores"] >= 1
    code, shown, _ = run_cli(capsys, "certify", run)
    assert code == 2, "a run folder alone sends the token nowhere"
    quick.setenv("BUDGETNET_METER_TARGETS", device.relay.url)
    device.relay.next_run()
    code, shown, _ = run_cli(capsys, "certify", run)
    assert code == 0
    assert f"target {device.relay.url}" in shown
    assert not [path for path in run.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_meter_that_is_restarted_during_a_search_changes_nothing(
    whole: tuple[Path, int], device: Device, tmp_path: Path
) -> None:
    undisturbed, answers = whole

    def restart(count: int) -> None:
        if count == answers // 2:
            device.stop()
            device.start_after(1.0)

    device.relay.next_run(restart)
    assert main([*SEARCH, *device.budgets(), "--out", str(tmp_path / "run")]) == 0
    same_run(tmp_path / "run", undisturbed)
    assert certificate(tmp_path / "run")["holds"]


def test_a_meter_that_is_gone_ends_the_run_with_a_sentence_and_resume_goes_on(
    whole: tuple[Path, int],
    device: Device,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed, answers = whole
    monkeypatch.setattr(remote, "PATIENCE", 1.0)
    device.relay.next_run(lambda count: device.stop() if count == answers - 2 else None)
    command = [*SEARCH, *device.budgets(), "--out", tmp_path / "run"]
    code, _, said = run_cli(capsys, *command)
    assert code == 2
    assert said.startswith(f"error: the target {device.relay.url} has not answered for 1 s")
    assert said.rstrip().endswith("then go on with --resume")
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    assert not (tmp_path / "run" / "certificate.json").exists()

    device.start()
    device.relay.next_run()  # a process that goes on measures the full network again: the budget is a share of its time
    assert run_cli(capsys, *command, "--resume")[0] == 0
    for name in ("weights.safetensors", "architecture.json"):
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()
    assert certificate(tmp_path / "run")["holds"]
