"""Local search never leaves the budgets, uses them up, and returns the best that it saw."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget, parse_all, within_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.naming import own_names
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.local_search import Moves, local_search, samples
from budgetnet.strategies.start import marginal_costs
from tests.random_graphs import generator, random_gates, small_space
from tests.small_runs import mlp

BUDGETS = (["macs<=30%"], ["steps(2)<=70%"], ["macs<=60%", "params<=50%"], ["tests.small_runs:weigh<=7"])


def make(net: SuperNetwork, texts: list[str], seed: int = 0) -> tuple[Moves, list[Budget]]:
    budgets = parse_all(texts, net, own=own_names(*texts))
    preference = torch.randn(len(net.graph.edges), generator=generator(seed))
    weights = marginal_costs(budgets, net.graph).tolist()
    return Moves(net.graph, budgets, preference, weights, generator(seed)), budgets


def worth(gates: Tensor) -> float:
    """A made-up score: every edge helps, some more."""
    return -float(gates.float() @ torch.arange(1.0, len(gates) + 1))


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
        neighbour = moves.neighbour(filled)
        for gates in (shrunk, filled, *([] if neighbour is None else [neighbour])):
            assert bool(within_all(budgets, gates[None])[0])
            assert torch.equal(net.graph.live(gates[None])[0], gates)


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
def test_no_edge_fits_into_a_neighbour_either(net: SuperNetwork, texts: list[str]) -> None:
    moves, budgets = make(net, texts)
    gates, changes = moves.fill(check(profile(budgets)).live().gates()), 0
    for _ in range(40):
        neighbour = moves.neighbour(gates)
        if neighbour is None:
            continue
        assert bool((neighbour & ~gates).any()), "not a part of it"
        assert bool((gates & ~neighbour).any()), "nor all of it and more"
        assert torch.equal(moves.fill(neighbour), neighbour)
        gates, changes = neighbour, changes + 1
    assert changes


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
def test_the_ranking_is_feasible_sorted_and_no_longer_than_asked(net: SuperNetwork, texts: list[str]) -> None:
    moves, budgets = make(net, texts)
    fallback = check(profile(budgets)).gates()
    seen: list[Tensor] = []

    def score(gates: Tensor) -> float:
        seen.append(gates)
        return worth(gates)

    ranked = local_search(moves, list(random_gates(net.graph, 6, seed=1)), fallback, score, 20)
    assert [candidate.score for candidate in ranked] == sorted(worth(gates) for gates in seen)
    assert 1 <= len(seen) <= 21
    assert len({tuple(gates.tolist()) for gates in seen}) == len(seen), "none is scored twice"
    assert bool(within_all(budgets, torch.stack(seen)).all())


def test_it_finds_the_best_of_a_small_graph() -> None:
    net = mlp()
    moves, budgets = make(net, ["macs<=70%"])
    every = torch.tensor(list(itertools.product([False, True], repeat=len(net.graph.edges))))
    live = net.graph.live(every)
    allowed = live[live.any(1) & within_all(budgets, live)]
    best = min(map(worth, allowed))
    starts = list(random_gates(net.graph, 8, seed=2))
    ranked = local_search(moves, starts, check(profile(budgets)).gates(), worth, len(allowed))
    assert ranked[0].score == best


def test_without_a_feasible_start_the_fallback_is_used() -> None:
    net = mlp()
    budgets = parse_all(["macs<=31%"], net)
    fallback = check(profile(budgets)).live().gates()
    moves = Moves(net.graph, budgets, torch.zeros(6), [1.0] * 6, generator(0))
    ranked = local_search(moves, [], fallback, worth, evaluations=3)
    assert bool(within_all(budgets, ranked[0].gates[None])[0])


def test_candidates_without_a_score_come_last() -> None:
    net = mlp()
    moves, budgets = make(net, ["macs<=70%"])
    scores = iter([1.0, *[math.inf] * 50])
    starts = list(random_gates(net.graph, 3, seed=0))
    ranked = local_search(moves, starts, check(profile(budgets)).gates(), lambda gates: next(scores), 6)
    assert ranked[0].score == 1.0
