"""Γ's start: samples connect and cost what the budgets allow, by the regime that the start names."""

import pytest
import torch
from torch import Tensor, nn

from budgetnet.budgets.budget import Budget, parse_all
from budgetnet.budgets.feasibility import check, expected, profile
from budgetnet.costs.base import Cost
from budgetnet.costs.meter import Meter
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import build
from budgetnet.strategies.paper import paper
from budgetnet.strategies.start import (
    ANCHORED,
    BY_COST,
    EQUAL,
    GIVEN,
    LOOSE,
    Start,
    budgeted_start,
    equal_logit,
    marginal_costs,
)
from tests.random_graphs import generator, small_space
from tests.small_runs import mlp


def test_gamma_starts_at_three_in_the_paper() -> None:
    net = mlp()
    budgets = parse_all(["macs<=20%"], net)
    assert paper().start(budgets, net.graph, net.graph.full).logits.tolist() == [3.0] * 6
    assert paper().start(budgets, net.graph, net.graph.full).regime == GIVEN


@pytest.mark.parametrize("budget", ["macs<=25%", "macs<=50%", "params<=75%", "steps(2)<=60%", "macs<=100%"])
def test_gamma_starts_where_samples_connect_and_cost_what_the_budget_allows(budget: str) -> None:
    net = mlp(4)
    budgets = parse_all([budget], net)
    anchor = check(profile(budgets))
    distribution = budgeted_start(budgets, net.graph, anchor).distribution(net.graph)
    gates = distribution.sample(4000, generator(9)).gates
    connected = gates[net.graph.live(gates).any(1)]
    assert len(connected) > 1600
    assert float(budgets[0].meter.evaluate(connected).mean()) < 1.15 * budgets[0].maximum
    assert bool(((distribution.probabilities > 0.0) & (distribution.probabilities < 1.0)).all())


@pytest.mark.parametrize("budget", ["steps(4)<=50%", "macs<=8%"])
def test_no_edge_starts_out_of_reach_however_expensive_it_is(budget: str) -> None:
    net = build("resnet-fabric:width=3,channels=4", (3, 16, 16), 10)
    budgets = parse_all([budget], net)
    distribution = budgeted_start(budgets, net.graph, check(profile(budgets))).distribution(net.graph)
    assert float(distribution.logits.detach().min()) >= -4.0
    assert bool(distribution.sample(2000, generator(3)).gates.any(0).all())


def start_of(space: str, budget: str) -> tuple[SuperNetwork, Start]:
    net = build(space, (3, 16, 16), 10)
    budgets = parse_all([budget], net)
    return net, budgeted_start(budgets, net.graph, check(profile(budgets)))


@pytest.mark.parametrize(
    ("space", "budget"),
    [
        ("resnet-fabric:width=3,channels=4", "macs<=30%"),
        ("neural-fabric:width=8,scales=5,filters=4", "macs<=30%"),
        ("neural-fabric:width=8,scales=5,filters=4", "macs<=10%"),
        ("neural-fabric:width=8,scales=5,filters=4", "params<=30%"),
    ],
)
def test_what_costs_more_is_less_likely_at_the_start_and_nothing_else_counts(space: str, budget: str) -> None:
    net, start = start_of(space, budget)
    logits = start.logits
    assert start.regime == BY_COST
    order = marginal_costs(parse_all([budget], net), net.graph).argsort()
    assert bool((logits[order].diff() <= 1e-6).all())
    assert float(logits.max() - logits.min()) > 0.5


@pytest.mark.parametrize("budget", ["macs<=20%", "steps(4)<=50%"])
def test_all_edges_start_equally_likely_where_some_would_be_rare(budget: str) -> None:
    net, start = start_of("resnet-fabric:width=3,channels=4", budget)
    logits = start.logits
    assert start.regime == EQUAL
    budgets = parse_all([budget], net)
    assert len(set(logits.tolist())) == 1
    assert mean_cost(net, float(logits[0]), budget) == pytest.approx(budgets[0].maximum, rel=0.15)
    assert mean_cost(net, float(logits[0]) + 0.5, budget) > budgets[0].maximum, "no logit that is much larger would do"


@pytest.mark.parametrize("budget", ["macs<=30%", "macs<=80%", "steps(4)<=50%", "params<=20%"])
def test_an_equal_start_is_the_likeliest_whose_samples_cost_what_the_budget_allows(budget: str) -> None:
    net = small_space("resnet-fabric", width=2)
    budgets = parse_all([budget], net)
    logit = equal_logit(budgets, net.graph)
    assert mean_cost(net, logit - 0.25, budget) <= 1.02 * budgets[0].maximum
    assert mean_cost(net, logit + 0.25, budget) >= 0.98 * budgets[0].maximum


def mean_cost(net: SuperNetwork, logit: float, budget: str) -> float:
    """Of samples with all edges at one logit that connect."""
    gates = EdgeDistribution(net.graph, logit).sample(2000, generator(3)).gates
    return float(parse_all([budget], net)[0].meter.evaluate(gates[net.graph.live(gates).any(1)]).mean())


def test_a_long_chain_under_a_loose_budget_starts_where_it_connects() -> None:
    graph = Graph(Edge(f"{i}.{lane}", str(i), str(i + 1)) for i in range(30) for lane in range(2))
    net = SuperNetwork(graph, {edge.name: nn.Linear(3, 3) for edge in graph.edges}, input_shape=(3,))
    budgets = parse_all(["macs<=100%"], net)
    start = budgeted_start(budgets, graph, graph.full)
    assert start.logits.tolist() == pytest.approx([3.0] * 60, abs=1e-2)
    assert start.regime == LOOSE


def test_a_long_chain_under_a_tight_budget_is_anchored() -> None:
    graph = Graph(Edge(f"{i}.{lane}", str(i), str(i + 1)) for i in range(30) for lane in range(2))
    net = SuperNetwork(graph, {edge.name: nn.Linear(3, 3) for edge in graph.edges}, input_shape=(3,))
    budgets = parse_all(["macs<=52%"], net)
    anchor = check(profile(budgets))
    start = budgeted_start(budgets, graph, anchor)
    assert start.regime == ANCHORED
    assert bool((start.logits[anchor.gates()] == 4.0).all())


def test_under_a_tight_budget_what_costs_more_is_less_likely() -> None:
    net = build("resnet-fabric:width=3,channels=4", (3, 16, 16), 10)
    budgets = parse_all(["macs<=9%"], net)
    anchor = check(profile(budgets))
    start, others = budgeted_start(budgets, net.graph, anchor), ~anchor.gates()
    logits = start.logits
    assert start.regime == BY_COST
    order = marginal_costs(budgets, net.graph)[others].argsort()
    assert bool((logits[others][order].diff() <= 1e-6).all())
    assert float(logits[others].max() - logits[others].min()) > 1


def test_what_an_edge_adds_is_the_full_cost_without_it() -> None:
    net = mlp()
    budgets = parse_all(["macs<=50%", "params<=25%"], net)
    for i, value in enumerate(marginal_costs(budgets, net.graph).tolist()):
        gates = net.graph.full.gates()
        gates[i] = False
        rest = net.graph.architecture(gates)
        assert value == pytest.approx(sum((b.meter.full - b.meter(rest)) / b.maximum for b in budgets))


def test_a_start_says_what_its_samples_are_expected_to_cost() -> None:
    net = mlp(4)
    budgets = parse_all(["macs<=50%", "params<=70%"], net)
    start = budgeted_start(budgets, net.graph, check(profile(budgets)))
    assert list(start.expected.values()) == expected(budgets, start.distribution(net.graph))
    about = start.about()
    assert about["start"] == start.regime
    assert about["start_cost/macs"] == start.expected["macs"]


class Seconds(Cost):
    """A measured cost: an edge takes a second, and a bound is expected that is so many times larger."""

    measured = True

    def __init__(self, graph: Graph, margin: float) -> None:
        super().__init__(graph)
        self.margin = margin

    def __call__(self, architecture: Architecture, batch: object = None) -> float:
        return float(len(architecture.live()))

    def evaluate(self, live: Tensor) -> Tensor:
        return self.margin * live.sum(1).double()


def test_the_margin_of_a_measured_cost_does_not_hide_what_an_edge_adds() -> None:
    net = mlp()
    plain, wide = (
        marginal_costs([Budget("seconds<=4", Meter(Seconds(net.graph, margin)), 4.0)], net.graph)
        for margin in (1.0, 1.5)
    )
    assert float(plain.min()) >= 0.25
    assert torch.equal(wide, 1.5 * plain)
