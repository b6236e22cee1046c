"""Networks of converted models as structure files: they come back without the code that made them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import budgetnet
from budgetnet.export.rebuilding import rebuild
from budgetnet.export.structure import describe
from budgetnet.network.extract import extract
from tests.models import MODELS
from tests.spaces.from_model.exactness import called, make_case


@pytest.mark.parametrize("name", MODELS)
def test_the_network_of_a_converted_model_comes_back(name: str) -> None:
    case = make_case(*MODELS[name])
    net = case.net.eval()
    gates = net.graph.live(torch.rand(50, len(net.graph.edges), generator=torch.Generator().manual_seed(0)) < 0.8)
    smaller = [net.graph.architecture(row) for row in gates[gates.any(1)][:1]]
    for architecture in (net.graph.full, *smaller):
        network = extract(net, architecture).eval()
        again = rebuild(json.loads(json.dumps(describe(network))), network.state_dict(), "x").eval()
        with torch.no_grad():
            assert torch.equal(called(again, case.inputs), called(network, case.inputs))


PROGRAM = """
import sys, torch, budgetnet
found = budgetnet.load(sys.argv[1])
assert not [name for name in sys.modules if name.startswith("tests")]
torch.save(found.model.eval()(torch.load(sys.argv[2])), sys.argv[3])
"""


def test_a_run_of_a_converted_model_opens_where_its_code_is_not(tmp_path: Path) -> None:
    """In a process of its own, which cannot import the module of the model."""
    torch.manual_seed(0)
    make, inputs = MODELS["resnet"]
    examples, out = inputs(32), tmp_path / "run"
    data: Any = (examples, torch.arange(32) % 5)
    net = budgetnet.from_model(make().eval(), examples[:2])
    budgetnet.search(net, data, data, budgets="macs<=90%", out=out, epochs=0.2, batch_size=16, quiet=True)
    with torch.no_grad():
        expected = budgetnet.load(out, net).model.eval()(examples)
    torch.save(examples, tmp_path / "inputs.pt")
    files = [str(out), str(tmp_path / "inputs.pt"), str(tmp_path / "outputs.pt")]
    command = [sys.executable, "-c", PROGRAM, *files]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "outputs.pt"), expected)
