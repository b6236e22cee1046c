"""`file_size`: what a file really takes, certificate included, is never more than what was promised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from budgetnet.budgets.budget import parse
from budgetnet.budgets.certificate import certify
from budgetnet.costs import bind
from budgetnet.costs.files import COMPARED
from budgetnet.costs.latency.predictor import random_architectures
from budgetnet.export import Description, export_network
from budgetnet.network.extract import extract
from budgetnet.records.environment import environment
from tests.random_graphs import small_space


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_the_estimate_is_close_to_the_exported_bytes(name: str) -> None:
    net = small_space(name)
    meter = bind("file_size", net)
    for architecture in random_architectures(net.graph, 5, seed=2):
        assert meter(architecture) == pytest.approx(meter.evidence(architecture).value, rel=0.1)
    live = torch.stack([a.gates() for a in random_architectures(net.graph, COMPARED, seed=3)])
    assert meter.cost.refresh(live)["error"] < 0.1
    smallest = meter.cost.smallest()
    assert smallest is not None
    assert meter(smallest) == float(meter.evaluate(live).min().clamp_max(meter(smallest)))


def test_the_file_with_its_certificate_is_within_what_was_certified(tmp_path: Path) -> None:
    net = small_space("resnet-fabric")
    architecture = net.named["resnet-20"]
    network = extract(net, architecture).eval()
    labels = tuple(f"class number {i}" for i in range(10))
    space = "resnet-fabric:width=3,channels=4"
    description = Description(space, architecture.to_json(), net.input_shape, labels)
    budgets = [parse(text, net) for text in ("file_size<=1MB", "size<=1MB", "macs<=100M", "steps(2)<=100")]
    certificate = certify(
        net, architecture, budgets, network=network, description=description, environment=environment()
    ).to_json()
    sealed = Description(space, architecture.to_json(), net.input_shape, labels, certificate=certificate)
    done = export_network(network, tmp_path / "a.onnx", "onnx", sealed, torch.rand(4, *net.input_shape))
    size = done.path.stat().st_size
    entry = certificate["budgets"][0]
    assert (
        size - len(json.dumps(certificate))
        < size
        <= entry["upper_bound"]
        <= bind("file_size", net).evidence(architecture).value
    )
    assert entry["holds"]
    assert entry["how"]["network"] == "exported"
