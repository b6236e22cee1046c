"""Regions that are narrowed along hidden axes, in a hand-made super network with a bundle, a chain and fixed edges."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.network.axes import Axis, Cut, LayerCuts
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork

WIDTH, HIDDEN = 3, 10


def cut(axis: int) -> Cut:
    return Cut(HIDDEN, ((axis, torch.arange(HIDDEN)[:, None]),))


def chain_region() -> Region:
    """linear → batch norm → relu → linear → relu → linear: two hidden axes that share the middle layer."""
    layers = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN),
        nn.BatchNorm1d(HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, WIDTH),
    )
    one, two = cut(0), cut(1)
    cuts = {
        "0": LayerCuts({"weight": {0: one}, "bias": {0: one}}),
        "1": LayerCuts({name: {0: one} for name in ("weight", "bias", "running_mean", "running_var")}),
        "3": LayerCuts({"weight": {0: two, 1: one}, "bias": {0: two}}),
        "5": LayerCuts({"weight": {1: two}}),
    }
    axes = (Axis("first", (0, 3, 6, 8, 10)), Axis("second", (0, 5, 10)))
    return Region(fx.symbolic_trace(layers), axes=axes, cuts=cuts)


def network(seed: int = 0) -> SuperNetwork:
    torch.manual_seed(seed)
    edges = [
        Edge("skip", "a", "b", fixed=True),
        *(Edge(f"first.{u}", "a", "i", bundle="first") for u in range(4)),
        *(Edge(f"second.{u}", "i", "m", bundle="second") for u in range(2)),
        Edge("gate", "m", "b"),
    ]
    modules = {"skip": nn.Identity(), "first": chain_region(), "gate": nn.BatchNorm1d(WIDTH)}
    return SuperNetwork(Graph(edges, [("first", "second")]), modules, input_shape=(WIDTH,), head=nn.Linear(WIDTH, 2))


def draws(net: SuperNetwork, count: int) -> torch.Tensor:
    return EdgeDistribution(net.graph, initial=0.0).sample(count, torch.Generator().manual_seed(1)).gates


@pytest.mark.parametrize("training", [False, True])
def test_a_narrowed_network_is_its_extracted_twin(training: bool) -> None:
    x = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(2))
    for row in draws(network(), 12):
        net = network().train(training)
        twin = extract(net, net.graph.architecture(row))
        one, two = net(x, row), twin(x)
        assert torch.allclose(one, two, atol=1e-6)
        one.square().sum().backward()
        two.square().sum().backward()
        ours = sum(float(p.grad.double().square().sum()) for p in net.parameters() if p.grad is not None)
        theirs = sum(float(p.grad.double().square().sum()) for p in twin.parameters() if p.grad is not None)
        assert ours == pytest.approx(theirs, rel=1e-4)
        assert not any(type(module).__module__.startswith("budgetnet") for module in twin.modules())


def test_batch_norm_of_kept_channels_only() -> None:
    net = network().train()
    row = torch.tensor([True, True, False, True, False, True, True, True])
    before = copy.deepcopy(net.edge_modules[1].body.get_submodule("1").running_mean)
    net(torch.randn(8, WIDTH), row)
    changed = net.edge_modules[1].body.get_submodule("1").running_mean != before
    assert changed.tolist() == [True] * 3 + [False] * 3 + [True] * 2 + [False] * 2


def test_groups_are_what_each_gives_alone() -> None:
    net = network().eval()
    gates, x = draws(net, 5), torch.randn(10, WIDTH)
    together = net(x, gates)
    for i, row in enumerate(gates):
        assert torch.allclose(together[2 * i : 2 * i + 2], net(x[2 * i : 2 * i + 2], row), atol=1e-6)


def test_counts_are_those_of_the_extracted_network() -> None:
    net = network()
    region = net.edge_modules[1]
    numbers = region.tensor_counts(lambda t: float(t.numel()) if isinstance(t, nn.Parameter) else 0.0)
    work = {node.name: float(region.body.get_submodule(node.target).weight.numel()) for node in linears(region.body)}
    macs = region.call_counts(work)
    gates = [[(i >> k) & 1 == 1 for k in range(6)] for i in range(64)]
    choices = [row for row in gates if any(row[:4]) and any(row[4:])]
    found = numbers.evaluate([torch.tensor([r[:4] for r in choices]), torch.tensor([r[4:] for r in choices])])
    for row, value in zip(choices, found.tolist(), strict=True):
        keeps = (tuple(row[:4]), tuple(row[4:]))
        small = region.narrow(keeps)
        assert value == numbers(keeps) == sum(p.numel() for p in small.parameters())
        assert macs(keeps) == sum(layer.weight.numel() for layer in small.modules() if isinstance(layer, nn.Linear))
        assert all(
            m.weight.shape == (m.out_features, m.in_features) for m in small.modules() if hasattr(m, "in_features")
        )


def linears(body: fx.GraphModule) -> list[fx.Node]:
    return [
        node
        for node in body.graph.nodes
        if node.op == "call_module" and isinstance(body.get_submodule(str(node.target)), nn.Linear)
    ]


def test_ordering_blocks_does_not_change_the_output() -> None:
    net = network().eval()
    x = torch.randn(4, WIDTH)
    before = net(x)
    net.edge_modules[1].order(0, torch.randperm(HIDDEN))
    net.edge_modules[1].order(1, torch.randperm(HIDDEN))
    assert torch.allclose(net(x), before, atol=1e-6)


def test_fixed_edges_are_never_drawn() -> None:
    graph = network().graph
    gamma = EdgeDistribution(graph, initial=-20.0)
    drawn = gamma.sample(20, torch.Generator().manual_seed(0))
    assert drawn.gates[:, 0].all()
    assert float(drawn.log_prob.detach().abs().max()) < 1e-3
    assert gamma.probabilities[0] == 1
    assert gamma.entropy()[0] == 0
    assert [edge.name for edge in gamma.mode()] == ["skip"]
    assert graph.architecture(torch.zeros(8, dtype=torch.bool)).live().kept == {"skip"}


def test_bundles_and_chains_are_checked() -> None:
    with pytest.raises(UserError, match="same nodes"):
        Graph([Edge("a", "x", "y", bundle="b"), Edge("b", "x", "z", bundle="b"), Edge("c", "y", "z")])
    with pytest.raises(UserError, match="not a bundle"):
        Graph([Edge("a", "x", "y", bundle="b")], [("other",)])
    units = [Edge("a", "x", "y", bundle="b"), Edge("c", "y", "z", bundle="d"), Edge("e", "x", "y")]
    with pytest.raises(UserError, match="other edges"):
        Graph(units, [("b", "d")])
    with pytest.raises(UserError, match="needs a Region"):
        SuperNetwork(Graph([Edge("a", "x", "y", bundle="b")]), {"b": nn.Identity()}, input_shape=(3,))


def test_a_thousand_edges_are_fast_enough_to_sample() -> None:
    edges = []
    for layer in range(50):
        edges.append(Edge(f"skip{layer}", f"n{layer}", f"n{layer + 1}", fixed=True))
        edges += [Edge(f"u{layer}.{u}", f"n{layer}", f"n{layer + 1}", bundle=f"u{layer}") for u in range(20)]
    graph = Graph(edges)
    drawn = EdgeDistribution(graph).sample(8, torch.Generator().manual_seed(0))
    assert drawn.gates.shape == (8, 1050)
    assert math.isfinite(float(drawn.log_prob.detach().sum()))
    assert len(graph.operations) == 100
