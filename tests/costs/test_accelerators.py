"""What runs on an accelerator is chosen by its name, timed by its clock and named by the certificate.

There need be none here: a device that pretends to be one stands for it where times and names are asked for.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from budgetnet.budgets.certificate import BudgetEntry, Certificate
from budgetnet.costs import accelerators, latency, peak_memory
from budgetnet.costs.latency import runtimes, timing
from budgetnet.errors import UserError
from budgetnet.export.formats import _provider
from budgetnet.network.extract import extract
from budgetnet.records.environment import machine
from tests.small_runs import mlp


@pytest.fixture
def network() -> fx.GraphModule:
    net = mlp()
    return extract(net, net.graph.full).eval()


@pytest.mark.parametrize("runtime", ["eager", "compile"])
def test_an_accelerator_that_is_not_there_is_refused_before_any_work(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.raises(UserError, match="device=cuda cannot be measured here: this machine has no accelerator"):
        latency(mlp(), runtime=runtime, provider="cuda")
    with pytest.raises(UserError, match="device=cuda:1 cannot be measured here"):
        peak_memory(mlp(), device="cuda:1")
    with pytest.raises(UserError, match="device=cpu is what is measured without it"):
        latency(mlp(), runtime=runtime, provider="cpu")
    with pytest.raises(UserError, match="both given"):
        peak_memory(mlp(), device="cuda", target="http://pi:8700")


def test_a_provider_may_be_called_by_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(UserError, match="no provider CUDAExecutionProvider; it has"):
        latency(mlp(), provider="cuda")(mlp().graph.full)
    known = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
    assert _provider("cuda", known) == _provider("CUDAExecutionProvider", known) == known[1]
    assert _provider("tensorrt", known) == known[0]
    assert _provider("mine", known) == "mine"


def test_the_clock_of_a_device_takes_the_times(monkeypatch: pytest.MonkeyPatch, network: fx.GraphModule) -> None:
    """The meta device stands for an accelerator; its runs take what its clock says, the reference's half of it."""
    placed: list[str] = []

    def seconds(run: Any, device: str) -> float:
        placed.append(run().device.type)
        return 2e-3 if len(placed) % 2 else 1e-3

    monkeypatch.setattr(accelerators, "check_device", lambda name: None)
    monkeypatch.setattr(accelerators, "seconds", seconds)
    monkeypatch.setattr(accelerators, "about", lambda name: {"device": name, "accelerator": "a GPU"})
    runtime = runtimes.make("eager", "meta")
    subject = runtime.subject(network, torch.zeros(1, 6).numpy())
    assert subject.inputs.device.type == "meta"
    series = runtime.measure(subject, subject, threads=1, seconds=0.05, rounds=1)
    assert set(placed) == {"meta"}
    assert set(series.network.tolist()) | set(series.reference.tolist()) == {1e-3, 2e-3}
    assert not series.disturbed.any()
    assert runtime.about()["accelerator"] == "a GPU"
    assert len(series) >= timing.PAIRS[0]


def test_an_accelerator_is_named_where_it_measured_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "a GPU")
    assert machine()["accelerator"] is None
    assert machine("cuda:0")["accelerator"] == "a GPU"
    known = accelerators.about("cuda:0")
    amounts: dict[str, Any] = {"text": "", "maximum": 1.0, "measured": 0.5, "upper_bound": 0.5, "holds": True}
    entry = BudgetEntry(cost="latency", unit="s", how={"runtime": "eager", **known}, **amounts)
    plain = BudgetEntry(cost="macs", unit="macs", how={"method": "exact"}, **amounts)
    made = {"processor": "a CPU", "cores": 2}
    shown = Certificate(holds=True, budgets=(entry, plain), machine=made).show()
    assert "measured on a GPU beside a CPU" in shown
    assert "device cuda:0" in shown
    assert "GPU" not in Certificate(holds=True, budgets=(plain,), machine=made).show()


def test_the_device_s_counter_bounds_the_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(accelerators, "check_device", lambda name: None)
    monkeypatch.setattr(accelerators, "peak", lambda network, inputs, device: 10**9)
    monkeypatch.setattr(accelerators, "about", lambda name: {"device": name, "accelerator": "a GPU"})
    net = mlp()
    evidence = peak_memory(net, device="cuda").evidence(net.graph.full)
    assert evidence.upper_bound == 1e9 > evidence.value == peak_memory(net)(net.graph.full)
    assert evidence.how["accelerator"] == "a GPU"
