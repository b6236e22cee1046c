"""Every runtime of the registry on one small network, and runtimes that a user brings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

from budgetnet.costs import bind, latency, peak_memory, target_memory
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.latency import runtimes, timing
from budgetnet.costs.latency.cost import Effort, Latency
from budgetnet.costs.latency.runtimes import RUNTIMES, BenchProgram, OnnxRuntime, Runtime, Subject
from budgetnet.costs.latency.samples import random_images
from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.formats import pack_onnx
from budgetnet.naming import own_names
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric
from tests.meters import TOKEN, Meter, meter

cost_module = sys.modules["budgetnet.costs.latency.cost"]
SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def net() -> SuperNetwork:
    torch.manual_seed(0)
    return resnet_fabric(width=1, channels=4, groups=2, classes=3, input_shape=SHAPE)


@pytest.fixture(scope="module")
def network(net: SuperNetwork) -> fx.GraphModule:
    return extract(net, net.graph.full).eval()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "samples", 4)
    for effort in ("FIT", "CANDIDATE", "CERTIFY"):
        monkeypatch.setattr(cost_module, effort, Effort(0.02, 2))
    monkeypatch.setattr(cost_module, "PATIENCE", 0.2)


# torch.compile takes a minute for its first network: `python -m benchmarks.predictor_error` measures with it.
# ExecuTorch brings 300 MB of packages, which these tests do without: `python -m benchmarks.runtimes` runs it.
@pytest.mark.parametrize("name", [name for name in RUNTIMES if name not in ("compile", "executorch")])
def test_every_runtime_exports_loads_runs_and_agrees(name: str, network: fx.GraphModule) -> None:
    runtime = runtimes.make(name)
    images = random_images(3, SHAPE)
    exported = runtime.export(network, SHAPE)
    with torch.inference_mode():
        scaled = torch.from_numpy(images) / 127.5 - 1 if runtime.form == "exported" else torch.from_numpy(images)
        expected = network(scaled).numpy()
    subject = runtime.subject(exported, images)
    found = runtime.outputs(runtime.run(runtime.load(exported, 1), subject.inputs))
    np.testing.assert_allclose(found, expected, atol=1e-4)
    other, source = (OnnxRuntime(), exported) if runtime.onnx else (runtimes.Eager(), network)
    assert runtime.compare(exported, other, source, images) < 1e-4
    series = runtime.measure(subject, subject, threads=1, seconds=0.05, rounds=2)
    assert len(series) >= timing.PAIRS[0]
    assert float(timing.ratio(series.calm())) == pytest.approx(1, rel=0.4)


def deliverable(net: SuperNetwork, network: fx.GraphModule) -> Deliverable:
    description = Description("own", net.graph.full.to_json(), SHAPE, ("a", "b", "c"))
    samples = [torch.from_numpy(random_images(8, SHAPE))]
    return Deliverable(
        net.graph.full,
        network,
        lambda: pack_onnx(network, description),
        pack_int8=lambda: pack_onnx(network, description, samples),
    )


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_openvino_is_measured_on_the_file_that_is_handed_over(
    net: SuperNetwork, network: fx.GraphModule, precision: str
) -> None:
    cost = latency(net, runtime="openvino", precision=precision)
    evidence = cost.certify(deliverable(net, network), 60.0)
    assert 0 < evidence.value <= evidence.upper_bound < 60
    assert (evidence.how["runtime"], evidence.how["precision"]) == ("openvino", precision)
    assert evidence.how["network"] == "exported"
    assert evidence.how["difference"] < (1e-4 if precision == "fp32" else 0.2)


SIGNALLED = """
import gc, signal, subprocess, sys, threading
from pathlib import Path
from budgetnet.costs.latency.runtimes import make
runtime, file = make("openvino", ""), Path(sys.argv[1]).read_bytes()
first, second = runtime.load(file, 1), runtime.load(file, 1)
del first; gc.collect()
del second; gc.collect()
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
subprocess.run(["true"], check=True)
assert heard
"""


def test_a_signal_after_openvino_finds_its_stack(net: SuperNetwork, network: fx.GraphModule, tmp_path: Path) -> None:
    """Its plugin exchanges the stack of signal handlers; a process whose stack is gone dies of the next signal."""
    (tmp_path / "model.onnx").write_bytes(deliverable(net, network).pack())
    program = [sys.executable, "-X", "faulthandler", "-c", SIGNALLED, str(tmp_path / "model.onnx")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_int8_is_predicted_and_measured_like_any_other(net: SuperNetwork) -> None:
    cost = latency(net, precision="int8")
    gates = torch.stack([net.graph.full.gates(), cost.smallest().gates()])
    predicted = cost.evaluate(gates)
    assert 0 < predicted[1] < predicted[0]
    assert cost.evidence(net.graph.full).how["precision"] == "int8"


class Wrong(OnnxRuntime):
    """Agrees with nobody."""

    def run(self, loaded: Any, inputs: Any) -> Any:
        return super().run(loaded, inputs) + 1


class Broken(OnnxRuntime):
    def load(self, exported: Any, threads: int) -> Any:
        raise RuntimeError("no such device")


class Phone(BenchProgram):
    """A device whose program gives times: a hundredth of a second for each kilobyte."""

    def times(self, exported: bytes, batch: int, threads: int, seconds: float) -> Sequence[float]:
        return [len(exported) / 1e5 * batch] * 7


def test_a_runtime_of_ones_own_measures_predicts_and_certifies(net: SuperNetwork, network: fx.GraphModule) -> None:
    cost = latency(net, runtime=Phone())
    assert isinstance(cost, Latency)
    size = len(OnnxRuntime().export(network, SHAPE))
    assert cost.evidence(net.graph.full).value == pytest.approx(size / 1e5)
    handed_over = deliverable(net, network)
    evidence = cost.certify(handed_over, 60.0)
    assert evidence.value == evidence.upper_bound == pytest.approx(len(handed_over.onnx) / 1e5)
    assert cost.other_form(handed_over) == {}


PAGE = Path(__file__).parents[3] / "docs" / "measure-on-your-device.md"
ADB = """#!/bin/sh
if [ "$1" = shell ]; then sh -c "$(echo "$2" | sed "s#/data/local/tmp#DEVICE#")"; else cp "$2" "DEVICE"; fi
"""
BENCH = """#!/bin/sh
for run in 1 2 3 4 5 6 7 8 9 10; do echo "$(wc -c < "$1") $3" | awk '{ printf "%.6f\\n", $1 * $2 / 1000 }'; done
"""


def test_the_class_of_the_page_measures_by_a_program_on_the_device(
    net: SuperNetwork, network: fx.GraphModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder in place of the phone, whose bench tool takes a microsecond for each byte of a file."""
    device, tools = tmp_path / "device", tmp_path / "tools"
    for path, text in ((tools / "adb", ADB), (device / "bench", BENCH)):
        path.parent.mkdir()
        path.write_text(text.replace("DEVICE", str(device)))
        path.chmod(0o755)
    (block,) = re.findall(r"```python\n(# my_phone\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my_phone.py").write_text(block)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    cost = bind("latency(batch=2, runtime=my_phone:Phone)", net, own={"my_phone:Phone"}).cost
    handed_over = deliverable(net, network)
    evidence = cost.certify(handed_over, 60.0)
    assert evidence.value == pytest.approx(2 * len(handed_over.onnx) / 1e6)
    assert evidence.how["runtime"] == "my_phone:Phone"


def test_pairs_of_a_bench_program_are_as_the_device_gave_them() -> None:
    class Counting(BenchProgram):
        def __init__(self) -> None:
            self.asked: list[tuple[str, int, int, float]] = []

        def times(self, exported: Any, batch: int, threads: int, seconds: float) -> Sequence[float]:
            self.asked.append((exported, batch, threads, seconds))
            return [1.0, 2.0, 3.0] if exported == "network" else [0.5, 0.5]

    runtime = Counting()
    two = np.zeros((2, 1))
    series = runtime.measure(Subject("network", two), Subject("reference", two[:1]), threads=3, seconds=4.0, rounds=1)
    assert len(series) == timing.PAIRS[0], "rounds are added until there are enough pairs"
    assert series.network.tolist() == [1.0, 2.0] * 10
    assert set(series.reference.tolist()) == {0.5}
    assert runtime.asked[:2] == [("network", 2, 3, 2.0), ("reference", 1, 3, 2.0)]


@pytest.mark.parametrize("times", [[], [0.0], [float("nan")], [-1.0]])
def test_times_that_are_none_are_refused(times: list[float]) -> None:
    class Mute(BenchProgram):
        def times(self, exported: Any, batch: int, threads: int, seconds: float) -> Sequence[float]:
            return times

    subject = Subject("x", np.zeros((1, 1)))
    with pytest.raises(UserError, match="no times above zero"):
        Mute().measure(subject, subject, threads=1, seconds=1.0, rounds=1)


def test_outputs_that_do_not_agree_are_refused(net: SuperNetwork, network: fx.GraphModule) -> None:
    wrong = Wrong()
    exported = wrong.export(network, SHAPE)
    assert wrong.compare(exported, OnnxRuntime(), exported, random_images(2, SHAPE)) > 0.1

    class Other(Runtime):
        load, run = wrong.load, wrong.run  # type: ignore[assignment]

    with pytest.raises(UserError, match="differ from the source's"):
        latency(net, runtime=Other()).certify(deliverable(net, network), 60.0)


def test_what_a_users_runtime_raises_is_a_sentence(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match="raised RuntimeError: no such device; correct it"):
        latency(net, runtime=Broken())(net.graph.full)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"runtime": "tensorrt"}, "'tensorrt' does not exist; use onnx, eager, compile, openvino, executorch"),
        ({"runtime": "eager", "precision": "int8"}, "runs no int8"),
        ({"runtime": "executorch", "precision": "int8"}, "runs no int8"),
        ({"precision": "fp16"}, "fp32 or int8"),
        ({"runtime": "openvino", "provider": "X"}, "for runtime=onnx, eager or compile"),
        ({"runtime": "eager", "target": "http://a:1"}, "leave out runtime=eager"),
        ({"target": "pi:8700"}, "not an address"),
    ],
)
def test_what_no_runtime_does_is_refused_at_once(net: SuperNetwork, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        latency(net, **arguments)


def test_a_provider_that_is_not_there_is_named(net: SuperNetwork) -> None:
    with pytest.raises(UserError, match=r"no provider NoSuchProvider; it has .*CPUExecutionProvider"):
        latency(net, provider="NoSuchProvider")(net.graph.full)


@pytest.mark.parametrize("name", ["openvino", "executorch"])
def test_without_its_package_the_extra_of_a_runtime_is_named(
    network: fx.GraphModule, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    # as in a process that has not loaded OpenVINO before
    monkeypatch.setattr(runtimes, "_openvino_core", runtimes._openvino_core.__wrapped__)
    runtime = runtimes.make(name)
    with pytest.raises(UserError, match=rf"runtime={name} needs .*: pip install 'budgetnet\[{name}\]'"):
        runtime.load(runtime.subject(b"" if runtime.onnx else network, random_images(1, SHAPE)).exported, 1)


OWN = "tests.costs.latency.test_runtimes:Phone"


def test_a_runtime_by_name_is_loaded_only_where_the_user_names_it(net: SuperNetwork) -> None:
    budget = f"latency(batch=2, runtime={OWN})<=3ms"
    text = budget.partition("<=")[0]
    assert own_names(budget) == {OWN}
    found = bind(text, net, own=own_names(budget)).cost
    assert isinstance(found, Latency)
    assert isinstance(found.runtime, Phone)
    assert found.runtime.name == OWN
    with pytest.raises(UserError, match="never because a file does"):
        bind(text, net)
    with pytest.raises(UserError, match="derive it from"):
        bind("latency(runtime=builtins:dict)", net, own={"builtins:dict"})


def test_a_file_cannot_say_where_a_token_is_sent(net: SuperNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "latency(batch=2, target=http://pi:8700)"
    assert own_names(f"{text}<=3ms") == {"http://pi:8700"}
    for cost in (text, "peak_memory(target=http://pi:8700)"):
        with pytest.raises(UserError, match="a file cannot say where a token is sent"):
            bind(cost, net)
        assert bind(cost, net, own=own_names(f"{text}<=3ms")).cost.measured
    monkeypatch.setenv("BUDGETNET_METER_TARGETS", "http://other:1,http://pi:8700")
    assert bind(text, net).cost.measured


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    with meter(tmp_path_factory.mktemp("meter")) as found:
        yield found


def test_peak_memory_on_a_target_is_predicted_measured_and_named(
    network: fx.GraphModule, net: SuperNetwork, running: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUDGETNET_METER_TOKEN", TOKEN)
    monkeypatch.setattr(target_memory, "SAMPLES", 3)
    monkeypatch.setattr(target_memory, "REPEATS", 2)
    # enough examples at once for activations to be most of the memory
    cost = peak_memory(net, batch=512, target=running.url)
    smallest = cost.smallest()
    assert smallest is not None
    both = torch.stack([net.graph.full.gates(), smallest.gates()])
    predicted = cost.evaluate(both)
    assert predicted[1] <= predicted[0]
    evidence = cost.certify(deliverable(net, network), 1e9)
    activations = 512 * 4 * 8 * 8 * 4
    assert activations < evidence.value <= evidence.upper_bound < 100e6
    assert evidence.how["target"] == running.url
    assert evidence.how["processor"]
    again = peak_memory(net, batch=512, target=running.url)
    again.load_state_dict(json.loads(json.dumps(cost.state_dict())))
    assert again.evaluate(both).tolist() == predicted.tolist()
    assert set(cost.refresh(both[:1])) == {"error", "measured"}


def test_a_target_is_predicted_measured_and_named(
    net: SuperNetwork, network: fx.GraphModule, running: Meter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUDGETNET_METER_TOKEN", TOKEN)
    cost = latency(net, target=running.url)
    gates = torch.stack([net.graph.full.gates(), cost.smallest().gates()])
    predicted = cost.evaluate(gates)
    assert 0 < predicted[1] < predicted[0]
    begin = time.monotonic()
    evidence = cost.certify(deliverable(net, network), 60.0)
    assert 0 < evidence.value <= evidence.upper_bound < time.monotonic() - begin
    assert evidence.how["target"] == running.url
    assert evidence.how["machine"]["processor"]
    assert TOKEN not in str(evidence) + str(cost.state_dict())
    again = latency(net, target=running.url)
    again.load_state_dict(cost.state_dict())
    running.stop()
    assert again.evaluate(gates).tolist() == predicted.tolist(), "what was learnt needs no target"
