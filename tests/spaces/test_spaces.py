"""The text that names a space, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES, build
from tests.random_graphs import small_space

OWN = """
from torch import nn
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

def build(depth: int = 2, classes: int = 3):
    edges = [Edge(f"e{i}", f"n{i}", f"n{i + 1}") for i in range(depth)]
    modules = {edge.name: nn.Linear(4, 4) for edge in edges}
    return SuperNetwork(Graph(edges), modules, input_shape=(4,), head=nn.Linear(4, classes))

def wrong():
    return 3
"""


def test_options_input_and_classes_reach_the_builder() -> None:
    net = build("resnet-fabric:width=2,channels=4,groups=2", input_shape=(1, 12, 10), classes=7)
    assert net.input_shape == (1, 12, 10)
    assert net.shapes.output == (7,)
    assert len(net.graph.edges) == 2 * (2 + 2 * 3)
    assert net.name == "resnet-fabric:width=2,channels=4,groups=2"


@pytest.mark.parametrize("name", SPACES)
def test_a_space_is_built_again_from_its_own_name(name: str) -> None:
    net = small_space(name)
    again = build(net.name, net.input_shape, net.shapes.output[0])
    assert again.graph == net.graph
    assert again.shapes == net.shapes


def test_a_users_builder_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_space_for_a_test.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    net = build("own_space_for_a_test:build:depth=5", input_shape=(9, 9), classes=6, own=["own_space_for_a_test:build"])
    assert (len(net.graph.edges), net.shapes.output) == (5, (6,))
    with pytest.raises(UserError, match="gave a int, not a SuperNetwork"):
        build("own_space_for_a_test:wrong", own=["own_space_for_a_test:wrong"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resnet", ["'resnet'", "resnet-fabric, neural-fabric", "package.module:name"]),
        ("resnet:width=3", ["'resnet'", "resnet-fabric"]),
        ("resnet-fabric:wide=3", ["'wide=3'", "width, channels, groups"]),
        ("resnet-fabric:classes=3", ["'classes=3'"]),
        ("resnet-fabric:width=-3", ["width=-3", "1 or more"]),
        ("resnet-fabric:width=0", ["width=0", "1 or more"]),
        ("resnet-fabric:channels=0", ["channels=0"]),
        ("resnet-fabric:groups=0", ["groups=0"]),
        ("resnet-fabric:width=three", ["a whole number", "'three'"]),
        ("resnet-fabric:groups=8", ["32×32", "too small for 8 groups", "at most 6"]),
        ("neural-fabric:scales=7", ["32×32", "too small for 7 scales", "at most 6"]),
        ("neural-fabric:scales=1", ["scales=1", "2 or more"]),
        ("neural-fabric:filters=-1", ["filters=-1"]),
        ("neural-fabric:task=detection", ["task=detection", "classification or segmentation"]),
        ("neural-fabric:width=1,task=segmentation", ["width=1", "segmentation", "2 or more"]),
        ("no.module.here:build", ["no.module.here", "cannot be imported"]),
    ],
)
def test_a_space_that_does_not_exist_or_fit_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        build(text, own=own_names(text))
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("shape", [(32,), (32, 32), (3, 0, 32), (0, 32, 32), (3, -1, 32), (1, 3, 32, 32)])
@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_an_input_that_is_no_image_is_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="channels×height×width"):
        build(name, input_shape=shape)


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_no_classes_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="classes=0"):
        build(name, classes=0)


def test_a_users_own_graph_has_no_need_of_the_registry() -> None:
    net = SuperNetwork(Graph([Edge("a", "x", "y")]), {"a": nn.Linear(2, 2)}, input_shape=(2,))
    assert net.name == "custom"
