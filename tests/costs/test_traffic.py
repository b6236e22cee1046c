"""`traffic`: bytes by hand for a small graph, the smallest against enumeration, placements that are none."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from budgetnet.costs import bind, traffic
from budgetnet.costs.traffic import place
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from tests.random_graphs import small_space

GRAPH = Graph(
    [Edge("ab", "a", "b"), Edge("ac", "a", "c"), Edge("bc", "b", "c"), Edge("bd", "b", "d"), Edge("cd", "c", "d")]
)
SIZES = {"a": 3, "b": 5, "c": 7, "d": 2}


def network() -> SuperNetwork:
    """Node values of 3, 5, 7 and 2 numbers; an input of 4 and an output of 6."""
    modules = {edge.name: nn.Linear(SIZES[edge.source], SIZES[edge.target]) for edge in GRAPH.edges}
    return SuperNetwork(GRAPH, modules, input_shape=(4,), stem=nn.Linear(4, 3), head=nn.Linear(2, 6))


def kept(*names: str) -> Architecture:
    return Architecture(GRAPH, frozenset(names))


def write(path: Path, value: object) -> str:
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def test_values_cross_once_and_the_output_comes_back(tmp_path: Path) -> None:
    meter = bind(f"traffic({write(tmp_path / 'p.json', {'device': ['a', 'b']})})", network())
    assert meter.unit == "B"
    assert meter(kept("ab", "bd")) == 4 * (5 + 6)
    assert meter(kept("ab", "bc", "bd", "cd")) == 4 * (5 + 6), "b crosses once for two edges"
    assert meter(kept("ac", "cd")) == 4 * (3 + 6)
    assert meter(GRAPH.full) == 4 * (3 + 5 + 6)


def test_an_input_that_is_needed_in_the_cloud_crosses_and_nothing_does_on_one_side(tmp_path: Path) -> None:
    net = network()
    assert traffic(net, write(tmp_path / "p.json", {"cloud": ["a", "b", "c", "d"]}))(GRAPH.full) == 4 * (4 + 6)
    assert traffic(net, write(tmp_path / "q.json", {"cloud": []}))(GRAPH.full) == 0
    back_and_forth = place(net, {"b"})
    assert back_and_forth(kept("ab", "bd")) == 4 * (3 + 5)


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_many_architectures_at_once_are_each_and_bytes_are_counted_by_another_way(name: str) -> None:
    net = small_space(name)
    cloud = set(net.graph.nodes[len(net.graph.nodes) // 2 :])
    cost = place(net, cloud)
    rows = torch.rand(20, len(net.graph.edges), generator=torch.Generator().manual_seed(0)) < 0.6
    live = net.graph.live(rows)
    live = live[live.any(1)]
    for row, value in zip(live, cost.evaluate(live).tolist(), strict=True):
        architecture = net.graph.architecture(row)
        senders = {e.source for e in architecture if (e.source in cloud) != (e.target in cloud)}
        floats = sum(torch.Size(net.shapes.nodes[net.graph.nodes.index(node)]).numel() for node in senders)
        assert value == cost(architecture) == 4 * (floats + torch.Size(net.shapes.output).numel())


@pytest.mark.parametrize("cloud", [set(), {"d"}, {"b", "d"}, {"c"}, {"a", "b", "c", "d"}])
def test_the_smallest_is_that_of_all_architectures(cloud: set[str]) -> None:
    cost = place(network(), cloud)
    live = GRAPH.live(torch.tensor(list(itertools.product([False, True], repeat=5))))
    assert cost(cost.smallest()) == float(cost.evaluate(live[live.any(1)]).min())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["cannot be read", "check the path"]),
        ("{", ["does not hold JSON"]),
        ("[]", ['"device"', '"cloud"']),
        ('{"device": ["a"], "cloud": ["b"]}', ["one side"]),
        ('{"edge": ["a"]}', ["one side"]),
        ('{"cloud": "a"}', ["one side"]),
        ('{"cloud": ["a", "e"]}', ["'e'", "a, b, c, d"]),
    ],
)
def test_a_placement_that_is_none_is_refused(tmp_path: Path, content: str | None, words: list[str]) -> None:
    path = tmp_path / "placement.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError) as error:
        bind(f"traffic({path})", network())
    assert str(path) in str(error.value)
    assert all(word in str(error.value) for word in words)
