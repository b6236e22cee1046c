"""Extraction: plain torch, only live modules, copies of the weights, and a saved program that needs no budgetnet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES, neural_fabric, resnet_fabric
from tests.random_graphs import inputs, random_gates, small_space

RUN_ALONE = """
import sys, torch
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "budgetnet":
            raise ImportError("budgetnet is not installed here")
sys.meta_path.insert(0, Refuse())
folder = sys.argv[1]
program = torch.export.load(folder + "/net.pt2").module()
x, y = torch.load(folder + "/pair.pt", weights_only=True)
torch.testing.assert_close(program(x), y, rtol=1e-5, atol=1e-5)
assert not any(name.split(".")[0] == "budgetnet" for name in sys.modules)
"""


@pytest.fixture(scope="module")
def fabric() -> SuperNetwork:
    return resnet_fabric(width=2, channels=4, input_shape=(3, 8, 8))


def test_a_saved_program_runs_where_budgetnet_is_not_installed(fabric: SuperNetwork, tmp_path: Path) -> None:
    twin = extract(fabric.eval(), fabric.graph.architecture(random_gates(fabric.graph, 1, 0)[0]))
    x = inputs(fabric, 2)
    torch.export.save(torch.export.export(twin, (x,)), tmp_path / "net.pt2")
    torch.save((x, twin(x).detach()), tmp_path / "pair.pt")
    done = subprocess.run([sys.executable, "-c", RUN_ALONE, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("space", SPACES)
def test_no_class_of_budgetnet_is_in_an_extracted_network(space: str) -> None:
    net = small_space(space)
    twin = extract(net, net.graph.full)
    assert type(twin).__mro__[1] is fx.GraphModule
    names = {type(module).__module__.split(".")[0] for module in twin.modules() if module is not twin}
    assert names == {"torch"}
    assert "budgetnet" not in twin.code


def test_only_live_modules_are_kept(fabric: SuperNetwork) -> None:
    for row in random_gates(fabric.graph, 20, 1):
        architecture = fabric.graph.architecture(row)
        live = [fabric.edge_modules[fabric.graph.index[edge.name]] for edge in architecture.live()]
        expected = sum(p.numel() for module in (fabric.stem, fabric.head, *live) for p in module.parameters())
        assert sum(p.numel() for p in extract(fabric, architecture).parameters()) == expected


def test_the_weights_are_copies(fabric: SuperNetwork) -> None:
    twin = extract(fabric, fabric.graph.full)
    originals = {p.data_ptr() for p in fabric.parameters()}
    assert not originals & {p.data_ptr() for p in twin.parameters()}
    x = inputs(fabric, 1)
    before = fabric.eval()(x)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    torch.testing.assert_close(fabric(x), before)


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_is_that_of_the_super_network(fabric: SuperNetwork, training: bool) -> None:
    twin = extract(fabric.train(training), fabric.graph.full)
    assert all(module.training is training for module in twin.modules())


def test_identities_leave_no_trace_and_names_that_collide_stay_apart() -> None:
    graph = Graph([Edge("a.b", "x", "y"), Edge("a-b", "x", "y"), Edge("a_b", "x", "y"), Edge("same", "x", "y")])
    modules = {name: nn.Linear(2, 2) for name in ("a.b", "a-b", "a_b")}
    net = SuperNetwork(graph, {**modules, "same": nn.Identity()}, input_shape=(2,))
    twin = extract(net, graph.full)
    assert len(list(twin.children())) == 3
    x = torch.randn(3, 2)
    torch.testing.assert_close(twin(x), net(x))


def test_a_network_of_nothing_but_identities_is_the_identity() -> None:
    graph = Graph([Edge("one", "x", "y"), Edge("two", "y", "z")])
    net = SuperNetwork(graph, {"one": nn.Identity(), "two": nn.Identity()}, input_shape=(2,))
    x = torch.randn(3, 2)
    assert torch.equal(extract(net, graph.full)(x), x)


@pytest.mark.parametrize("names", ["def", "1", "the head", "é→", "stem", "head", "class.import"])
def test_odd_edge_names_are_fine(names: str) -> None:
    graph = Graph([Edge(names, "x", "y"), Edge("other", "x", "y")])
    net = SuperNetwork(
        graph, {names: nn.Linear(2, 2), "other": nn.Linear(2, 2)}, input_shape=(2,), stem=nn.Linear(2, 2)
    )
    x = torch.randn(3, 2)
    torch.testing.assert_close(extract(net, graph.full)(x), net(x))


def test_a_disconnected_architecture_has_no_network(fabric: SuperNetwork) -> None:
    with pytest.raises(UserError, match="does not connect"):
        extract(fabric, Architecture(fabric.graph, frozenset()))


def test_an_architecture_of_another_super_network_is_refused(fabric: SuperNetwork) -> None:
    other = neural_fabric(2, 2, 2, input_shape=(3, 4, 4))
    with pytest.raises(UserError, match="the architecture is of Graph"):
        extract(fabric, other.graph.full)
