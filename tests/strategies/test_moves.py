"""Moves never leave the budgets and use them up; starts are brought within them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from budgetnet.budgets.budget import Budget, parse_all, within_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.costs.base import FunctionCost
from budgetnet.costs.meter import Meter
from budgetnet.naming import own_names
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.removal import lifetimes
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.moves import Moves, brought_within, samples
from budgetnet.strategies.start import marginal_costs
from tests.random_graphs import examples, generator, graphs, random_gates, small_space, vector_networks
from tests.small_runs import mlp

BUDGETS = (["macs<=30%"], ["steps(2)<=70%"], ["macs<=60%", "params<=50%"], ["tests.small_runs:weigh<=7"])


def make(net: SuperNetwork, texts: list[str], seed: int = 0) -> tuple[Moves, list[Budget]]:
    budgets = parse_all(texts, net, own=own_names(*texts))
    preference = torch.randn(len(net.graph.edges), generator=generator(seed))
    weights = marginal_costs(budgets, net.graph).tolist()
    return Moves(net.graph, budgets, preference, weights, generator(seed)), budgets


@pytest.fixture(scope="module", params=["mlp", "fabric"])
def net(request: pytest.FixtureRequest) -> SuperNetwork:
    return mlp(4) if request.param == "mlp" else small_space("resnet-fabric", width=2)


@pytest.mark.parametrize("texts", BUDGETS, ids=str)
def test_every_move_stays_within_the_budgets_and_live(net: SuperNetwork, texts: list[str]) -> None:
    moves, budgets = make(net, texts)
    for start in random_gates(net.graph, 12, seed=3):
        shrunk = moves.shrink(start)
        if shrunk is None:
            continue
        assert not bool((shrunk & ~start).any()), "shrinking adds nothing"
        filled = moves.fill(shrunk)
        assert not bool((shrunk & ~filled).any()), "filling drops nothing"
        for gates in (shrunk, filled):
            assert bool(within_all(budgets, gates[None])[0])
            assert torch.equal(net.graph.live(gates[None])[0], gates)


def one_by_one(moves: Moves, gates: Tensor) -> Tensor:
    """Drops edges in the order of preference and looks at the budgets after each, then adds in the other order."""
    graph, order = moves.graph, moves.preference.argsort().tolist()
    gates = graph.live(gates[None])[0]
    for edge in order:
        rest = gates.clone()
        rest[edge] = False
        rest = graph.live(rest[None])[0]
        if not bool(within_all(moves.budgets, gates[None])[0]) and rest.any():
            gates = rest
    for edge in reversed(order):
        more = gates.clone()
        more[graph.ears(gates, [edge], moves.weights)[0]] = True
        if bool(within_all(moves.budgets, more[None])[0]):
            gates = more
    return gates


@given(vector_networks(), st.sampled_from(["macs<=60%", "params<=40%", "steps(2)<=80%"]), st.integers(0, 9))
@examples(60)
def test_many_edges_at_once_leave_as_much_as_one_by_one(net: SuperNetwork, text: str, seed: int) -> None:
    moves, budgets = make(net, [text], seed)
    expected = one_by_one(moves, net.graph.full.gates())
    shrunk = moves.shrink(net.graph.full.gates())
    if shrunk is None:
        assert not bool(within_all(budgets, expected[None])[0])
        return
    filled = moves.fill(shrunk)
    assert bool(within_all(budgets, filled[None])[0])
    ours, theirs = budgets[0].meter.evaluate(torch.stack([filled, expected])).tolist()
    assert ours >= 0.9 * theirs


def test_a_thousand_edges_are_shrunk_with_few_questions() -> None:
    """Two parallel edges between each two of 501 nodes, 250 must go: bisection asks about ten rows, not about 250."""
    graph = Graph(Edge(f"{i}{name}", f"n{i}", f"n{i + 1}") for i in range(500) for name in "ab")
    asked: list[int] = []

    def count(architecture: Architecture) -> float:
        asked.append(len(architecture))
        return float(len(architecture))

    meter = Meter(FunctionCost(graph, count, "edges"))
    moves = Moves(graph, [Budget("edges<=750", meter, 750.0)], torch.arange(1000.0), [1.0] * 1000, generator(0))
    shrunk = moves.shrink(graph.full.gates())
    assert shrunk is not None
    assert shrunk.tolist() == [i >= 500 or i % 2 == 1 for i in range(1000)]
    assert len(asked) < 20


@given(graphs(), st.integers(0, 99))
@examples(60)
def test_what_dies_with_an_edge_is_what_is_on_no_path(graph: Graph, seed: int) -> None:
    order = torch.randperm(len(graph.edges), generator=generator(seed)).tolist()
    survived, gates, drops = lifetimes(graph, graph.full.gates(), order), graph.full.gates(), 0
    for edge in order:
        rest = gates.clone()
        rest[edge] = False
        rest = graph.live(rest[None])[0]
        if gates[edge] and rest.any():
            gates, drops = rest, drops + 1
            assert torch.equal(survived >= drops, gates)
    assert int(survived.max()) == drops


@pytest.mark.parametrize("texts", BUDGETS, ids=str)
def test_after_filling_no_edge_fits_any_more(net: SuperNetwork, texts: list[str]) -> None:
    moves, budgets = make(net, texts)
    filled = moves.fill(check(profile(budgets)).live().gates())
    for edge in (~filled).nonzero().flatten().tolist():
        more = filled.clone()
        more[edge] = True
        live = net.graph.live(more[None])[0]
        assert not bool(live[edge]) or not bool(within_all(budgets, more[None])[0])


@pytest.mark.parametrize("texts", BUDGETS, ids=str)
def test_samples_are_within_the_budgets_and_use_them_up(net: SuperNetwork, texts: list[str]) -> None:
    moves, budgets = make(net, texts)
    found = list(samples(EdgeDistribution(net.graph, 0.0), moves, 5))
    assert 1 <= len(found) <= 5
    for gates in found:
        assert torch.equal(moves.fill(gates), gates), "nothing more fits"
        assert bool(within_all(budgets, gates[None])[0])


@pytest.mark.parametrize(("logit", "share", "close"), [(0.0, 60, True), (-1.5, 95, False)])
def test_samples_are_draws_of_gamma_close_to_the_budget_or_else_the_closest(
    logit: float, share: int, close: bool
) -> None:
    net = small_space("resnet-fabric", width=2)
    moves, (budget,) = make(net, [f"macs<={share}%"], seed=5)
    distribution = EdgeDistribution(net.graph, logit)
    found, again, draws = list(samples(distribution, moves, 4)), generator(5), []
    for _ in range(1 if close else 32):
        live = net.graph.live(distribution.sample(64, again, connected=True).gates)
        draws += [(float(budget.meter.evaluate(row[None])[0]) / budget.maximum, row) for row in live if row.any()]
    inside = list({row.numpy().tobytes(): (use, row) for use, row in reversed(draws) if use <= 1}.values())[::-1]
    assert (max(use for use, _ in inside) >= 0.9) == close
    best = [pair for pair in inside if pair[0] >= 0.9] or sorted(inside, key=lambda pair: -pair[0])
    assert len(found) == 4
    assert all(bool((row & ~filled).sum() == 0) for (_, row), filled in zip(best, found, strict=False))


def test_shrinking_drops_the_least_preferred_first() -> None:
    net = mlp()
    budgets = parse_all(["tests.small_runs:weigh<=7"], net, own=["tests.small_runs:weigh"])
    preference = torch.tensor([5.0, 4.0, 3.0, 0.0, 1.0, 2.0])
    moves = Moves(net.graph, budgets, preference, [1.0] * 6, generator(0))
    shrunk = moves.shrink(net.graph.full.gates())
    assert shrunk is not None
    assert shrunk.tolist() == [True, True, True, False, True, True], "the full weight is 9, edge 3 weighs 2"


@pytest.mark.parametrize("texts", BUDGETS, ids=str)
def test_starts_are_brought_within_the_budgets_in_their_order_and_once_each(
    net: SuperNetwork, texts: list[str]
) -> None:
    moves, budgets = make(net, texts)
    fallback = check(profile(budgets)).gates()
    starts = list(random_gates(net.graph, 6, seed=1))
    found = brought_within(moves, [*starts, *starts], fallback, 20)
    kept = [moves.fill(gates) for start in starts if (gates := moves.shrink(start)) is not None]
    expected = list(dict.fromkeys(tuple(gates.tolist()) for gates in kept)) or [tuple(moves.fill(fallback).tolist())]
    assert [tuple(gates.tolist()) for gates in found] == expected
    assert bool(within_all(budgets, torch.stack(found)).all())
    assert len(brought_within(moves, starts, fallback, 1)) == 1


def test_without_a_feasible_start_the_fallback_is_used() -> None:
    net = mlp()
    budgets = parse_all(["macs<=31%"], net)
    fallback = check(profile(budgets)).live().gates()
    moves = Moves(net.graph, budgets, torch.zeros(6), [1.0] * 6, generator(0))
    (found,) = brought_within(moves, [], fallback, 3)
    assert bool((found & fallback).eq(fallback).all())
    assert bool(within_all(budgets, found[None])[0])
