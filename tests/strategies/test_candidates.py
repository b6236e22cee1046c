"""Who is looked at: the starts of local search, the racers, and the first candidate that holds."""

import hashlib

import pytest
import torch

from budgetnet.budgets.budget import parse_all, within_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture
from budgetnet.strategies.candidates import Candidates
from budgetnet.strategies.race import field_of
from budgetnet.strategies.recipes import fast
from budgetnet.strategies.start import Start, relative_costs
from tests.random_graphs import generator, small_space

NET = small_space("resnet-fabric", width=3)


def proposer(budget: str = "macs<=40%", learned: float = 0.0) -> Candidates:
    def seeded(purpose: str) -> torch.Generator:
        return generator(hashlib.blake2b(purpose.encode()).digest()[0])

    start = Start(torch.full((len(NET.graph.edges),), -1.0), "given", {}, equal=-1.2)
    learned_now = EdgeDistribution(NET.graph, learned)
    return Candidates(NET.graph, parse_all([budget], NET), learned_now, start, seeded, lambda: [torch.zeros(1)])


def candidates(one: Candidates, count: int = 12) -> list[Architecture]:
    """Candidates, in any order."""
    return [NET.graph.architecture(gates) for gates in list(one.starts(count, []))[1:]]


@pytest.mark.parametrize("random", [0, 2, 5])
def test_racers_are_the_best_candidates_and_as_many_samples_as_are_asked_for(random: int) -> None:
    one = proposer()
    ranked = candidates(one)
    racers = one.racers(ranked, 6, random)
    best = field_of([a.live().gates() for a in ranked], relative_costs(one.budgets, NET.graph), 6 - random)
    assert len(racers) == 6
    assert [gates.tolist() for gates in racers[: 6 - random]] == [gates.tolist() for gates in best]
    strange = [gates for gates in racers if NET.graph.architecture(gates) not in ranked]
    assert len(strange) == random
    assert bool(within_all(one.budgets, torch.stack(racers)).all())
    assert [gates.tolist() for gates in one.racers(ranked, 6, random)] == [gates.tolist() for gates in racers]


def test_samples_of_the_race_do_not_ask_what_gamma_has_learned() -> None:
    """It may have learned from shared weights that mislead; only the filling up prefers what it does."""
    eager, shy = (proposer(learned=logit).racers([], 4, 4) for logit in (6.0, -6.0))
    assert [gates.tolist() for gates in eager] == [gates.tolist() for gates in shy]


def test_starts_follow_gamma() -> None:
    sizes = [torch.stack(list(proposer("macs<=99%", logit).starts(8, []))).sum(1).tolist() for logit in (-1.0, 1.0)]
    assert sizes[0] != sizes[1]


def test_what_was_seen_to_be_good_is_a_start() -> None:
    one, seen = proposer(), candidates(proposer())[0].gates()
    assert any(torch.equal(gates, seen) for gates in one.starts(3, [seen]))


def test_the_first_that_holds_is_chosen_and_those_after_it_come_next() -> None:
    one = proposer()
    ranked = candidates(one, 4)
    chosen, others = one.first_that_holds(ranked)
    assert (chosen, others) == (ranked[0], ranked[1:])
    assert one.first_that_holds([]) == (None, [])
    trimmed, others = one.first_that_holds([NET.graph.full, ranked[1]])
    assert trimmed is not None
    assert trimmed != NET.graph.full
    assert one.budgets[0].meter(trimmed) <= one.budgets[0].maximum
    assert others == [ranked[1]]


def test_the_default_has_both_kinds_of_racers() -> None:
    assert 0 < fast().random_racers < fast().racers
