"""Multiply-adds, parameters and bytes against counts of the extracted network, and the smallest by brute force."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from budgetnet.costs import count, macs, params, size
from budgetnet.costs.counts import AdditiveCost
from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES, neural_fabric, resnet_fabric
from tests.random_graphs import (
    count_calls,
    every_gate_row,
    examples,
    graphs,
    inputs,
    random_gates,
    small_space,
    supernets,
)

ONE = Graph([Edge("only", "x", "y")])


def counted(net: SuperNetwork, architecture: Architecture) -> float:
    """torch's own count on the extracted network, and the sums: n − 1 additions of the node's size for n inputs."""
    twin = extract(net.eval(), architecture)
    with FlopCounterMode(display=False) as counter:
        twin(inputs(net, 1))
    live = list(architecture.live())
    sums = 0
    for node, shape in zip(net.graph.nodes, net.shapes.sums, strict=True):
        terms = sum(edge.target == node for edge in live)
        sums += max(terms - 1, 0) * math.prod(shape)
    return counter.get_total_flops() / 2 + sums


def test_resnet_20_by_an_independent_count() -> None:
    net = resnet_fabric(width=3)
    spine = net.architecture("resnet-20")
    assert macs(net)(spine) == counted(net, spine)
    by_hand = 32 * 32 * 9 * 3 * 16 + 64 * 10
    for group, side in enumerate((32, 16, 8)):
        channels, before = 16 * 2**group, 16 * 2 ** max(group - 1, 0)
        pixels = side * side
        by_hand += 3 * pixels * channels  # the sums
        by_hand += pixels * 9 * (5 * channels * channels + channels * before)
        by_hand += pixels * before * channels if group else 0  # the projection
    assert macs(net)(spine) == by_hand


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_only_upsampling_edges_are_charged_less_by_the_paper(task: str) -> None:
    net = neural_fabric(3, 3, 4, task, 3, (3, 16, 16))
    true, paper = macs(net), macs(net, "paper")
    for i, edge in enumerate(net.graph.edges):
        up = int(edge.target[-1]) < int(edge.source[-1])
        convolution = 4 * 4 * 9 * (16 / 2 ** int(edge.target[-1])) ** 2
        assert float(true.edges[i] - paper.edges[i]) == (convolution * 3 / 4 if up else 0)


@pytest.mark.parametrize("name", SPACES)
def test_costs_are_those_of_the_extracted_network_in_every_space(name: str) -> None:
    net = small_space(name)
    multiply_adds, weights, state = macs(net), params(net), size(net)
    for row in random_gates(net.graph, 12, 1):
        architecture = net.graph.architecture(row)
        twin = extract(net, architecture)
        assert multiply_adds(architecture) == counted(net, architecture)
        assert weights(architecture) == sum(p.numel() for p in twin.parameters())
        assert state(architecture) == bytes_as_saved(twin)


def bytes_as_saved(module: nn.Module) -> int:
    """The length of a safetensors file without its header."""
    data = safetensors.torch.save(dict(module.state_dict()))
    header = int.from_bytes(data[:8], "little")
    json.loads(data[8 : 8 + header])
    return len(data) - 8 - header


@given(supernets(), st.integers(0, 2**31))
@examples(30)
def test_costs_are_those_of_the_extracted_network_on_random_graphs(net: SuperNetwork, seed: int) -> None:
    architecture = net.graph.architecture(random_gates(net.graph, 1, seed)[0])
    twin = extract(net, architecture)
    assert macs(net)(architecture) == counted(net, architecture)
    assert params(net)(architecture) == sum(p.numel() for p in twin.parameters())
    assert size(net)(architecture) == sum(v.nbytes for v in twin.state_dict().values())


def test_an_activation_with_weights_is_charged_where_its_node_is_live() -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")])
    modules = {"a": nn.Linear(3, 3), "b": nn.Identity(), "skip": nn.Identity()}
    net = SuperNetwork(graph, modules, input_shape=(3,), activation={"y": nn.Linear(3, 3, bias=False)})
    assert params(net)(graph.full) == 12 + 9
    assert params(net)(Architecture(graph, frozenset({"skip", "a"}))) == 0
    assert macs(net)(graph.full) == 9 + 9 + 3
    assert macs(net)(Architecture(graph, frozenset({"a", "b"}))) == 18


@given(graphs(max_nodes=5, max_edges=8), st.integers(0, 2**31))
@examples(40)
def test_the_smallest_is_the_smallest_of_all(graph: Graph, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    edges, nodes = torch.randint(0, 9, (2, 20), generator=source).double()
    cost = AdditiveCost(graph, 5.0, edges[: len(graph.edges)], nodes[: len(graph.nodes)])
    rows = every_gate_row(graph)
    connected = [graph.architecture(row) for row in rows[graph.live(rows).any(1)]]
    smallest = cost.smallest()
    assert smallest.connected
    assert cost(smallest) == min(cost(architecture) for architecture in connected)


@given(supernets())
@examples(15)
def test_the_smallest_macs_are_the_smallest_of_all(net: SuperNetwork) -> None:
    cost = macs(net)
    rows = random_gates(net.graph, 64, 0)
    assert cost(cost.smallest()) <= min(cost(net.graph.architecture(row)) for row in rows)


@given(graphs(max_nodes=5, max_edges=8), st.integers(0, 2**31))
@examples(40)
def test_many_at_once_are_each_one_alone_by_the_definition(graph: Graph, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    edges, nodes = torch.rand(2, 20, generator=source, dtype=torch.float64)
    cost = AdditiveCost(graph, 1.0, edges[: len(graph.edges)], nodes[: len(graph.nodes)])
    live = graph.live(random_gates(graph, 10, seed))
    for value, row in zip(cost.evaluate(live).tolist(), live, strict=True):
        kept = list(graph.architecture(row))
        arrived = {edge.target for edge in kept}
        expected = 1 + sum(float(edges[graph.index[edge.name]]) for edge in kept)
        expected += sum(float(nodes[i]) for i, node in enumerate(graph.nodes) if node in arrived)
        assert value == pytest.approx(expected)
        assert cost(graph.architecture(row)) == pytest.approx(expected)


def test_evaluating_many_takes_as_many_calls_as_evaluating_one() -> None:
    net = small_space("neural-fabric")
    cost, live = params(net), net.graph.live(random_gates(net.graph, 128, 0))
    assert count_calls(lambda: cost.evaluate(live)) == count_calls(lambda: cost.evaluate(live[:1]))


class First(nn.Module):
    """The first output of a module that gives several."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        attention = isinstance(self.module, nn.MultiheadAttention)
        return self.module(x, x, x)[0] if attention else self.module(x)[0]


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Linear(5, 7), (5,), 35),
        (nn.Linear(5, 7), (3, 5), 105),
        (nn.Conv2d(4, 8, 3, padding=1), (4, 5, 6), 4 * 8 * 9 * 30),
        (nn.Conv2d(4, 8, 3, padding=1, groups=4), (4, 5, 6), 8 * 9 * 30),
        (nn.Conv2d(4, 8, 3, stride=2, dilation=2), (4, 9, 9), 4 * 8 * 9 * 9),
        (nn.ConvTranspose2d(4, 8, 2, stride=2), (4, 5, 5), 4 * 8 * 4 * 25),
        (nn.Conv1d(4, 6, 3), (4, 9), 4 * 6 * 3 * 7),
        (nn.Conv3d(2, 3, 3), (2, 4, 4, 4), 2 * 3 * 27 * 8),
        (First(nn.GRU(4, 6, batch_first=True)), (7, 4), 7 * 3 * 6 * (4 + 6)),
        (First(nn.LSTM(4, 6, batch_first=True)), (7, 4), 7 * 4 * 6 * (4 + 6)),
        (First(nn.MultiheadAttention(4, 2, batch_first=True)), (7, 4), 7 * 4 * 4 * 4 + 2 * 7 * 7 * 4),
        (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (7, 8), 7 * (4 * 64 + 2 * 128) + 2 * 7 * 7 * 8),
    ],
)
def test_any_module_is_counted_by_tracing(module: nn.Module, shape: tuple[int, ...], expected: int) -> None:
    net = SuperNetwork(ONE, {"only": module}, input_shape=shape)
    assert macs(net)(ONE.full) == expected


FREE = [
    (nn.BatchNorm2d(4), (4, 4, 4)),
    (nn.ReLU(), (4,)),
    (nn.Hardswish(), (4,)),
    (nn.GELU(), (4,)),
    (nn.PReLU(), (4,)),
    (nn.Tanh(), (4,)),
    (nn.MaxPool2d(2), (4, 4, 4)),
    (nn.AvgPool2d(2), (4, 4, 4)),
    (nn.AdaptiveAvgPool2d(1), (4, 4, 4)),
    (nn.Upsample(scale_factor=2), (4, 4, 4)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), (4, 4, 4)),
    (nn.Identity(), (4,)),
    (nn.Flatten(), (4, 4, 4)),
    (nn.Dropout(0.5), (4,)),
    (nn.ZeroPad2d(1), (4, 4, 4)),
]


@pytest.mark.parametrize(("module", "shape"), FREE)
def test_what_is_free_costs_nothing_and_is_not_named(module: nn.Module, shape: tuple[int, ...]) -> None:
    cost = macs(SuperNetwork(ONE, {"only": module}, input_shape=shape))
    assert (cost(ONE.full), cost.uncounted) == (0, ())


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.fft(x).real + torch.cumsum(x, 1)


def test_what_was_not_counted_is_named() -> None:
    cost = macs(SuperNetwork(ONE, {"only": nn.Sequential(nn.Linear(4, 4), Doubled())}, input_shape=(4,)))
    assert cost(ONE.full) == 16
    assert {"aten.add", "aten.cumsum"} <= set(cost.uncounted)
    assert any("fft" in name for name in cost.uncounted)


@pytest.mark.parametrize("name", SPACES)
def test_nothing_in_the_spaces_goes_uncounted(name: str) -> None:
    assert macs(small_space(name)).uncounted == ()


def test_counting_leaves_the_network_and_random_numbers_alone() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    net = SuperNetwork(ONE, {"only": module}, input_shape=(4,)).train()
    module[1].eval()
    before, state = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    for cost in (macs(net), params(net), size(net)):
        cost(ONE.full)
    assert [m.training for m in module] == [True, False, True]
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_an_unknown_accounting_is_refused() -> None:
    net = SuperNetwork(ONE, {"only": nn.Linear(2, 2)}, input_shape=(2,))
    with pytest.raises(UserError, match="'honest' does not exist; use true or paper"):
        macs(net, "honest")


def test_shares_of_a_chain_add_up() -> None:
    graph = Graph(Edge(f"e{a}", f"n{a}", f"n{b}") for a, b in itertools.pairwise(range(5)))
    net = SuperNetwork(graph, {edge.name: nn.Linear(3, 3) for edge in graph.edges}, input_shape=(3,))
    assert macs(net)(graph.full) == 4 * 9
    assert params(net)(graph.full) == 4 * 12
    assert size(net)(graph.full) == 4 * 48


@pytest.mark.parametrize("name", SPACES)
def test_any_module_is_counted_as_an_architecture_is(name: str) -> None:
    net = small_space(name)
    for architecture in (net.graph.full, *net.named.values()):
        network = extract(net, architecture).train()
        found = count(network, torch.zeros(3, *net.input_shape))
        assert (found.macs, found.params, found.uncounted) == (macs(net)(architecture), params(net)(architecture), ())
        assert network.training


class Attentive(nn.Module):
    """Two inputs, tied weights, a residual sum, a matrix product and an operation that nobody counts."""

    def __init__(self) -> None:
        super().__init__()
        self.one = self.two = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key = self.one(x), self.two(x)
        weights = (query @ key.transpose(1, 2)).erfinv() * mask
        return x + weights.softmax(-1) @ x


def test_products_and_sums_of_a_users_model_are_counted_and_the_rest_is_named() -> None:
    model, x, mask = Attentive(), torch.rand(4, 5, 8), torch.ones(4, 5, 5)
    with FlopCounterMode(display=False) as flops:
        model(x, mask)
    for call in ((x, mask), {"x": x, "mask": mask}):
        found = count(model, call)
        assert found.macs == flops.get_total_flops() / 2 / 4 + 5 * 8
        assert found.params == 8 * 8 + 8
        assert "aten.erfinv" in found.uncounted


def test_a_model_that_cannot_be_counted_is_one_sentence() -> None:
    for call in (torch.zeros(2, 3), torch.zeros(0, 8), (), torch.zeros(())):
        with pytest.raises(UserError, match="example inputs"):
            count(nn.Linear(8, 8), call)
