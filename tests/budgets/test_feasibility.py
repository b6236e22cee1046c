"""What can be met at all: the exact minimum, joint feasibility, and what a refusal says."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import ENUMERABLE, check, expected, minimise, profile, random_paths, smallest
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Graph
from budgetnet.network.supernet import SuperNetwork
from tests.random_graphs import every_gate_row, examples, graphs, live_names, small_space, vector_networks
from tests.small_runs import mlp


def brute_force(net: SuperNetwork, cost: str) -> float:
    """The least cost of any connected subset of the edges, one by one."""
    function = bind(cost, net, own=own_names(cost)).cost
    kept = (net.graph.architecture(row) for row in every_gate_row(net.graph))
    return min(float(function(a.live())) for a in kept if live_names(a))


@examples(25)
@given(vector_networks())
def test_the_smallest_cost_is_that_of_brute_force(net: SuperNetwork) -> None:
    if len(net.graph.edges) > 9:
        return
    for cost in ("macs", "params", "size", "steps(1)", "steps(2)", "steps(2,dfs)"):
        architecture, exact = smallest(bind(cost, net))
        assert exact
        assert architecture.connected
        assert bind(cost, net)(architecture) == pytest.approx(brute_force(net, cost), abs=1e-9)


@examples(30)
@given(graphs(max_edges=9), st.integers(0, 2**31))
def test_minimise_equals_enumeration_of_an_arbitrary_table(graph: Graph, seed: int) -> None:
    count = len(graph.edges)
    table = torch.rand(2**count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def objective(rows: torch.Tensor) -> torch.Tensor:
        return table[(rows.long() * 2 ** torch.arange(count)).sum(1)]

    best, exact = minimise(graph, objective, 0)
    connected = [row for row in every_gate_row(graph) if live_names(graph.architecture(row))]
    assert exact
    assert float(objective(best[None])) == min(float(objective(row[None])) for row in connected)


def test_a_larger_graph_is_searched_and_says_so() -> None:
    net = mlp(6)
    assert len(net.graph.edges) > ENUMERABLE
    architecture, exact = smallest(bind("steps(2)", net))
    assert not exact
    assert [edge.name for edge in architecture.live()] == ["0-6"], "the one edge that goes all the way"
    architecture, exact = smallest(bind("macs", net))
    assert exact
    assert [edge.name for edge in architecture] == ["0-6"]


def test_random_paths_are_paths_and_differ() -> None:
    graph = mlp(6).graph
    rows = random_paths(graph, 40, seed=1)
    assert all(len(live_names(graph.architecture(row))) == int(row.sum()) for row in rows)
    for row in rows:
        ends = [(graph.edges[i].source, graph.edges[i].target) for i in row.nonzero().flatten().tolist()]
        assert ends[0][0] == "layer0"
        assert all(first[1] == second[0] for first, second in itertools.pairwise(ends))
    assert len({tuple(row.tolist()) for row in rows}) > 10
    assert torch.equal(torch.stack(rows), torch.stack(random_paths(graph, 40, seed=1)))


@pytest.mark.parametrize("cost", ["macs", "params", "size", "steps(2)", "tests.small_runs:weigh"])
def test_a_refusal_names_the_smallest_reachable_cost(cost: str) -> None:
    net = mlp()
    least = brute_force(net, cost)
    (row,) = profile(parse_all([(cost, least * 0.999)], net, own=own_names(cost)))
    assert not row.satisfiable
    assert row.smallest == least
    with pytest.raises(UserError) as error:
        check([row])
    assert f"the smallest connected architecture of this space costs {row.budget.show(least)}" in str(error.value)
    assert row.budget.show(row.full) in str(error.value)
    (row,) = profile(parse_all([(cost, least)], net, own=own_names(cost)))
    assert row.satisfiable
    assert row.budget.meter(check([row])) == least


def test_a_refusal_on_a_large_graph_says_found() -> None:
    net = mlp(6)
    rows = profile(parse_all(["steps(2)<=1"], net))
    with pytest.raises(UserError, match=r"cannot be met: the smallest .*found costs 4"):
        check(rows)


@pytest.mark.parametrize(("layers", "said"), [(3, "no architecture meets them"), (5, "not found")])
def test_budgets_that_are_feasible_singly_but_not_together(layers: int, said: str) -> None:
    """`longest` wants few edges missing, macs few edges: small graphs are decided, large ones are 'not found'."""
    net = mlp(layers)

    def missing(network: SuperNetwork) -> object:
        return lambda architecture: float(len(network.graph.edges) - len(architecture.live()))

    assert (len(net.graph.edges) <= ENUMERABLE) == (layers == 3)
    budgets = parse_all([(missing, 0.5), "macs<=50%"], net)
    rows = profile(budgets)
    assert all(row.satisfiable for row in rows)
    with pytest.raises(UserError, match=r"singly but not together: " + said):
        check(rows)
    loose = parse_all([(missing, 0.5), "macs<=100%"], net)
    assert check(profile(loose)).live() == net.graph.full


def test_joint_feasibility_is_exact_on_a_small_graph() -> None:
    """Every pair of maxima for two opposed costs is decided as enumeration decides it."""
    net = mlp()

    def missing(network: SuperNetwork) -> object:
        return lambda architecture: float(len(network.graph.edges) - len(architecture.live()))

    architectures = [net.graph.architecture(row) for row in every_gate_row(net.graph)]
    points = [(missing(net)(a), bind("macs", net)(a)) for a in architectures if live_names(a)]  # type: ignore[operator]
    verdicts = set()
    for most, share in itertools.product((0, 1, 2, 3, 4), (20, 40, 60, 80, 100)):
        budgets = parse_all([(missing, most + 0.5), f"macs<={share}%"], net)
        possible = any(a <= most + 0.5 and b <= budgets[1].maximum for a, b in points)
        try:
            found = check(profile(budgets))
        except UserError:
            assert not possible
        else:
            assert possible
            assert all(budget.meter(found) <= budget.maximum for budget in budgets)
        verdicts.add(possible)
    assert verdicts == {True, False}


def test_expected_cost_is_the_mean_over_samples() -> None:
    net = small_space("resnet-fabric", width=1)
    budgets = parse_all(["macs<=60%", "steps(2)<=90%"], net)
    distribution = EdgeDistribution(net.graph, 0.5)
    values = expected(budgets, distribution, seed=3)
    samples = distribution.sample(4000, torch.Generator().manual_seed(5)).gates
    for value, budget in zip(values, budgets, strict=True):
        costs = budget.meter.evaluate(samples)
        assert abs(value - float(costs.mean())) < 5 * float(costs.std()) / 8
