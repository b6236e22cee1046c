"""Choosers that a search is compared with: they ask for no Γ, stay within the budgets and spend what they are given."""

import itertools

import pytest
import torch
from torch import Tensor

from benchmarks._opponents import CHOOSERS, chosen_by
from budgetnet.budgets.budget import Budget, parse_all, within_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data.seeds import generator_of
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.candidates import Candidates
from budgetnet.strategies.local_search import Candidate, Score
from budgetnet.strategies.start import Start
from tests.small_runs import make_runner, mlp, short


def worth(gates: Tensor) -> float:
    """A made-up score: every edge helps, some more."""
    return -float(gates.float() @ torch.arange(1.0, len(gates) + 1))


def ranked(
    name: str, net: SuperNetwork, budgets: list[Budget], score: Score, evaluations: int, learned: float = 0.0
) -> list[Candidate]:
    graph = net.graph
    candidates = Candidates(
        graph,
        budgets,
        EdgeDistribution(graph, learned),
        Start(torch.zeros(len(graph.edges)), "given", {}),
        lambda purpose: generator_of(purpose, 0),
        list,
    )
    return CHOOSERS[name]().rank(candidates, [], check(profile(budgets)).gates(), score, evaluations)


@pytest.mark.parametrize("name", CHOOSERS)
@pytest.mark.parametrize("texts", [["macs<=30%"], ["steps(2)<=70%"], ["macs<=60%", "params<=50%"]], ids=str)
def test_the_ranking_is_feasible_sorted_and_no_longer_than_asked(name: str, texts: list[str]) -> None:
    net, seen = mlp(4), list[Tensor]()
    budgets = parse_all(texts, net)

    def score(gates: Tensor) -> float:
        seen.append(gates)
        return worth(gates)

    found = ranked(name, net, budgets, score, 20)
    assert [candidate.score for candidate in found] == sorted(worth(gates) for gates in seen)
    assert 1 <= len(seen) <= 21
    assert len({tuple(gates.tolist()) for gates in seen}) == len(seen), "none is scored twice"
    assert bool(within_all(budgets, torch.stack(seen)).all())


@pytest.mark.parametrize("name", CHOOSERS)
def test_every_chooser_finds_the_best_of_a_small_graph(name: str) -> None:
    net = mlp()
    budgets = parse_all(["macs<=70%"], net)
    live = net.graph.live(torch.tensor(list(itertools.product([False, True], repeat=len(net.graph.edges)))))
    allowed = live[live.any(1) & within_all(budgets, live)]
    assert ranked(name, net, budgets, worth, len(allowed))[0].score == min(map(worth, allowed))


@pytest.mark.parametrize("name", CHOOSERS)
def test_what_gamma_has_learned_does_not_matter(name: str) -> None:
    net = mlp(4)
    budgets = parse_all(["macs<=60%"], net)
    eager, shy = (ranked(name, net, budgets, worth, 12, logit) for logit in (9.0, -9.0))
    assert [candidate.gates.tolist() for candidate in eager] == [candidate.gates.tolist() for candidate in shy]


def test_evolution_keeps_looking_elsewhere_where_climbing_is_stuck() -> None:
    """On a score that only random walks improve, the parents of evolution age and leave; the climber's never does."""
    net = mlp(4)
    budgets = parse_all(["macs<=60%"], net)
    seen: dict[str, list[Tensor]] = {"local": [], "evolution": []}
    for name, rows in seen.items():

        def score(gates: Tensor, rows: list[Tensor] = rows) -> float:
            rows.append(gates)
            return float(len(rows) > 1)

        ranked(name, net, budgets, score, 40)
    spread = {name: float(torch.stack(rows).float().var(0).sum()) for name, rows in seen.items()}
    assert spread["evolution"] > spread["local"]


def test_other_choosers_start_from_the_same_shared_weights() -> None:
    recipes = [short(), *(chosen_by(name, short()) for name in CHOOSERS)]
    archives = [make_runner(recipe=recipe).run().archive for recipe in recipes]
    looks = [[(e.loss, e.metric) for e in archive if e.phase == "search"] for archive in archives]
    assert looks[0] == looks[1] == looks[2]
    for archive in archives:
        chosen = [entry for entry in archive if entry.phase == "choose"]
        assert 1 <= len(chosen) <= 6
        assert all(entry.feasible for entry in chosen)
