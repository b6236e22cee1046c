"""Every file in `examples/` runs, as a user would run it, and what it found is what can be computed otherwise."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime
import pytest
import torch
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode

import budgetnet
from budgetnet import Architecture, SuperNetwork, data, extract, load, spaces

FOLDER = Path(__file__).parent.parent / "examples"
NEEDS = {"photos": "image", "tabular": "table", "rhythms": "wave", "text": "ids", "segmentation": "image"}
"""What people bring, each in under 25 lines of code, and the name of the raw inputs in the example."""
EXAMPLES = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in (*NEEDS, "notebook")]


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found_in(run: Path, net: SuperNetwork) -> tuple[Architecture, dict[str, Any]]:
    """The architecture that a run kept, and the only entry of its certificate."""
    architecture = Architecture.from_json(net.graph, (run / "architecture.json").read_text())
    (entry,) = json.loads((run / "certificate.json").read_text())["budgets"]
    return architecture, entry


def numbers(text: str, pattern: str) -> list[float]:
    """The groups of the first match of a pattern in what an example printed."""
    match = re.search(pattern, text)
    assert match, f"{pattern!r} is not in:\n{text}"
    return [float(group.replace(",", "")) for group in match.groups()]


def conv_macs(module: torch.nn.Module, x: torch.Tensor) -> int:
    """Multiply-adds of the convolutions of one example, from the shapes of a real run."""
    total = 0

    def count(conv: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal total
        assert isinstance(conv, torch.nn.Conv2d)
        total += conv.weight.numel() * output[0, 0].numel()

    convs = [m for m in module.modules() if isinstance(m, torch.nn.Conv2d)]
    hooks = [conv.register_forward_hook(count) for conv in convs]
    module(x)
    for hook in hooks:
        hook.remove()
    return total


def check_mlp_dag(path: Path, out: Path, said: str) -> None:
    assert len(path.read_text().splitlines()) < 40, "the user's own super network is shown in under 40 lines"
    assert numbers(said, r"differs from the gated one by (\S+)")[0] < 1e-5


def check_random_link(path: Path, out: Path, said: str) -> None:
    """The delay is a constant plus a log-normal variable, whose mean and quantiles have closed formulas."""
    example = module_of(path)
    net = spaces.resnet_fabric(width=2, channels=4, classes=10, input_shape=(1, 14, 14))
    halves = said.split("The 95th percentile of the delay")
    factors = {"mean": math.exp(example.SPREAD**2 / 2), "p95": math.exp(1.6448536 * example.SPREAD)}
    for (name, factor), cost, half in zip(factors.items(), ("link_delay", "link_delay_p95"), halves, strict=True):
        architecture, entry = found_in(out / cost, net)
        computing, sending = example.parts(net)(architecture)
        exact = {key: 1e3 * (computing + sending * value) for key, value in factors.items()}
        assert entry["holds"]
        assert entry["maximum"] == example.PROMISE
        assert entry["how"]["samples"] >= 400
        assert 1e3 * (computing + sending * factor) < 1e3 * example.PROMISE, f"the {name} that was promised is not kept"
        assert numbers(half, r"mean: .*simulated +(\S+) ms") == pytest.approx([exact["mean"]], rel=0.01, abs=0.06)
        assert numbers(half, r"p95 : .*simulated +(\S+) ms") == pytest.approx([exact["p95"]], rel=0.02, abs=0.06)
        (late,) = numbers(half, r"(\S+)% of all inputs take longer")
        longest = math.log((example.PROMISE - computing) / sending) / example.SPREAD
        assert late == pytest.approx(50 * math.erfc(longest / math.sqrt(2)), abs=0.3)
    assert late < 5, "95 of 100 inputs are in time"


def check_device_and_cloud(path: Path, out: Path, said: str) -> None:
    """Values cross where a live edge leads from one side to the other, as found on the graph; sizes from a real run."""
    example = module_of(path)
    net = spaces.resnet_fabric(width=2, channels=2, groups=4, classes=10, input_shape=(1, 28, 28)).eval()
    architecture, entry = found_in(out / "run", net)
    crossing = {e.source for e in architecture.live() if (e.source in example.DEVICE) != (e.target in example.DEVICE)}
    sides = {"g0": (2, 28), "g1": (4, 14), "g2": (8, 7), "g3": (16, 4)}
    expected = 40 + sum(4 * channels * side**2 for channels, side in (sides[node[:2]] for node in crossing))
    assert crossing
    assert entry["holds"]
    assert numbers(said, r"counted on the wire: (\d+) bytes") == [expected]
    assert entry["measured"] == entry["upper_bound"] == expected <= example.MAXIMUM
    assert json.loads((out / "placement.json").read_text()) == {"device": list(example.DEVICE)}
    network = extract(net, architecture)
    sent = example.count_on_the_wire(network, torch.zeros(1, 1, 28, 28))
    assert sum(sent.values()) == expected, "what crosses does not depend on the weights"


def check_input_dependent(path: Path, out: Path, said: str) -> None:
    """The same mean, from the shapes of real convolutions and from the pictures as they are stored."""
    dataset = data.load("embedded:size=14,limit=1280")
    net = spaces.resnet_fabric(width=2, channels=4, classes=10, input_shape=dataset.input_shape).eval()
    architecture, entry = found_in(out / "run", net)
    pixels = dataset.validation.inputs
    share = float((pixels > 0).double().mean())
    x = torch.zeros(1, 1, 14, 14)
    values = {net.graph.source: torch.zeros(1, 4, 14, 14)}
    total = float(conv_macs(net.stem, x) + 160)  # the head's linear layer is 16 × 10
    for node, edges in zip(net.graph.nodes[1:], net.graph.incoming[1:], strict=True):
        live = [i for i in edges if net.graph.edges[i].name in architecture.live()]
        outputs = []
        for i in live:
            source = net.graph.edges[i].source
            count = conv_macs(net.edge_modules[i], values[source])
            outputs.append(net.edge_modules[i](values[source]))
            early = source.startswith("g0")
            total += (count + outputs[-1].numel()) * (share if early else 1)
        if outputs:
            values[node] = outputs[0]
            total -= outputs[0].numel()  # n inputs are n − 1 additions
    assert entry["holds"]
    assert entry["how"]["samples"] == 4
    assert entry["measured"] == pytest.approx(total, rel=2e-3), "four unequal batches stand for all pictures"
    assert total <= entry["maximum"]
    assert numbers(said, r"picture by picture: ([\d,]+) on average") == pytest.approx([total], abs=1)
    (low, high) = numbers(said, r"from ([\d,]+) to ([\d,]+)")
    assert low < total < high, "the cost depends on the picture"


def check_own_loop(path: Path, out: Path, said: str) -> None:
    assert len(path.read_text().splitlines()) < 80, "a whole search in a loop of one's own in under 80 lines"
    assert numbers(said, r"accuracy (\S+)%")[0] > 90
    assert "the budget holds" in said


def check_own_device(path: Path, out: Path, said: str) -> None:
    """A network that was searched for on a device is faster there than the full one, and named by its runtime."""
    entry = json.loads((out / "run" / "certificate.json").read_text())["budgets"][0]
    assert entry["how"]["runtime"] == "own"
    assert entry["how"]["network"] == "exported"
    assert entry["holds"] == (entry["upper_bound"] <= entry["maximum"])
    full, found = numbers(said, r"full network (\S+) ms, found (\S+) ms on the device")
    assert found < 0.85 * full


def check_shrink_resnet(path: Path, out: Path, said: str) -> None:
    """Half of the multiply-adds, counted by torch on the network that is handed over; the ONNX file says the same."""
    assert len(path.read_text().splitlines()) < 40, "a user's own model is shrunk in under 40 lines"
    (entry,) = json.loads((out / "certificate.json").read_text())["budgets"]
    assert entry["holds"]
    network = load(out).network.eval()
    images = torch.randn(3, 1, 14, 14)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        expected = network(images)
    assert counter.get_total_flops() / 2 / 3 <= entry["maximum"]
    session = onnxruntime.InferenceSession(out / "model.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    assert torch.allclose(torch.from_numpy(found), expected, atol=1e-4)


def check_shrink_transformer(path: Path, out: Path, said: str) -> None:
    """The program that is handed over takes both tensors by name, as the model did, and has fewer weights."""
    (entry,) = json.loads((out / "certificate.json").read_text())["budgets"]
    assert entry["holds"]
    assert entry["measured"] <= entry["maximum"]
    weights = load_file(out / "weights.safetensors")
    (full,) = numbers(said, r"(\S+)M parameters")
    assert sum(tensor.numel() for tensor in weights.values()) < 0.75 * full * 1e6
    small = torch.export.load(out / "network.pt2").module()
    with torch.no_grad():
        outputs = small(words=torch.randint(0, 20, (3, 12)), padding=torch.zeros(3, 12, dtype=torch.bool))
    assert outputs.shape == (3, 2)
    assert len(path.read_text().splitlines()) < 40
    session = onnxruntime.InferenceSession(out / "model.onnx")
    given = {"words": torch.randint(0, 20, (3, 12)), "padding": torch.arange(12) >= torch.tensor([[3], [7], [12]])}
    (found,) = session.run(None, {name: tensor.numpy() for name, tensor in given.items()})
    with torch.no_grad():
        assert torch.allclose(torch.from_numpy(found), small(**given), atol=1e-4)
    assert numbers(said, r"right for (\d+)% of the test sentences")[0] > 75


def check_trained_table(path: Path, out: Path, said: str) -> None:
    """Accuracy and multiply-adds before and after, from the layers of the two networks themselves."""
    example = module_of(path)
    x, y = example.rows(1000, 3)
    before, after = example.trained_model(), budgetnet.load(out / "run").model.eval()
    accuracies = [100 * float((model(x).argmax(1) == y).float().mean()) for model in (before, after)]
    assert numbers(said, r"test accuracy: (\S+)% before, (\S+)% after") == pytest.approx(accuracies, abs=0.11)
    macs = [sum(m.weight.numel() for m in n.modules() if isinstance(m, torch.nn.Linear)) for n in (before, after)]
    assert macs[1] <= macs[0] / 2
    assert accuracies[1] > accuracies[0] - 5
    assert "teacher: self; certified: yes" in said


def check_trained_signal(path: Path, out: Path, said: str) -> None:
    """One importance pass for two networks, each certified, and what they are worth from the networks themselves."""
    example = module_of(path)
    x, y = example.signals(500, 3)
    folders = sorted(file.parent for file in out.glob("*/summary.json"))
    assert len(folders) == 2
    assert (out / "importance.safetensors").exists()
    assert said.count("certified: yes") == 2
    for share in (60, 30):
        network = budgetnet.load(out / f"macs-{share}pct").model.eval()
        right = float((network(x).argmax(1) == y).float().mean())
        (part,) = [part for part in said.split("macs<=") if part.startswith(f"{share}%")]
        assert numbers(part, r"test accuracy \S+ before, (\S+) after") == pytest.approx([right], abs=0.0021)
        was, now = numbers(part, r": (\d+) multiply-adds before, (\d+) after")
        assert now <= share / 100 * was


CHECKS: dict[str, Callable[[Path, Path, str], None]] = {
    "mlp_dag.py": check_mlp_dag,
    "trained_table.py": check_trained_table,
    "trained_signal.py": check_trained_signal,
    "own_loop.py": check_own_loop,
    "own_device.py": check_own_device,
    "random_link.py": check_random_link,
    "device_and_cloud.py": check_device_and_cloud,
    "input_dependent.py": check_input_dependent,
    "shrink_resnet.py": check_shrink_resnet,
    "shrink_transformer.py": check_shrink_transformer,
}


@pytest.mark.parametrize("name", NEEDS)
def test_each_need_ends_certified_and_its_files_reproduce_predict(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime alone and torch alone give what `result.predict` gives for raw inputs."""
    path = FOLDER / f"{name}.py"
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) < 25
    monkeypatch.setattr(sys, "argv", [str(path), "--out", str(tmp_path)])
    found = runpy.run_path(str(path))
    result = found["result"]
    assert result.met
    assert result.certificate.holds
    raw = found["data"].validation.inputs[:9] if name == "photos" else torch.as_tensor(found[NEEDS[name]][:9])
    expected = result.predict(raw)
    given = raw if raw.dtype == torch.int64 else raw.float()
    session = onnxruntime.InferenceSession((tmp_path / "model.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    alone = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: given.numpy()})[0])
    torch.testing.assert_close(alone, expected, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        program = torch.export.load(tmp_path / "model.pt2").module()(given)
        torch.testing.assert_close(program, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(result.model(raw if name == "photos" else given), expected, atol=1e-4, rtol=1e-4)
    if name != "text":  # its embedding is a class of the user's, which no folder can bring
        folder = tmp_path / "run" if name == "photos" else tmp_path
        torch.testing.assert_close(budgetnet.load(folder).predict(raw), expected)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_and_says_what_is_so(path: Path, tmp_path: Path) -> None:
    check = CHECKS[path.name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    arguments = ["--out", str(tmp_path)] if "--out" in path.read_text() else []
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), f"{path.name} prints nothing: an example says what it does"
    check(path, tmp_path, done.stdout)
