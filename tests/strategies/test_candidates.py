"""Who is looked at: settle's starts, the racers, and the first candidate that holds."""

import hashlib
from collections.abc import Sequence

import pytest
import torch

from budgetnet.budgets.budget import parse_all, within_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture
from budgetnet.strategies.candidates import Chooser
from budgetnet.strategies.capacity import capacity_of
from budgetnet.strategies.policy import relative_costs
from budgetnet.strategies.race import field_of
from budgetnet.strategies.recipes import fast
from tests.random_graphs import generator, small_space
from tests.small_runs import short

NET = small_space("resnet-fabric", width=3)


def chooser(budget: str = "macs<=40%", learned: float = 0.0, **recipe: object) -> Chooser:
    def seeded(purpose: str) -> torch.Generator:
        return generator(hashlib.blake2b(purpose.encode()).digest()[0])

    learned_from, start, equal = (EdgeDistribution(NET.graph, logit) for logit in (learned, -1.0, -1.2))
    return Chooser(
        NET.graph,
        parse_all([budget], NET),
        short(**recipe),
        learned_from,
        start,
        equal,
        seeded,
        lambda: capacity_of(NET),
        lambda: [torch.zeros(1)],
    )


def candidates(one: Chooser, count: int = 12) -> list[Architecture]:
    """Candidates of settle, in any order."""
    return [NET.graph.architecture(gates) for gates in list(one.starts(count, []))[1:]]


@pytest.mark.parametrize("wild", [0, 2, 5])
def test_racers_are_the_best_candidates_and_as_many_samples_as_are_asked_for(wild: int) -> None:
    one = chooser(race=6, wild=wild)
    ranked = candidates(one)
    racers = one.racers(ranked)
    best = field_of([a.live().gates() for a in ranked], relative_costs(one.budgets, NET.graph), 6 - wild)
    assert len(racers) == 6
    assert [gates.tolist() for gates in racers[: 6 - wild]] == [gates.tolist() for gates in best]
    strange = [gates for gates in racers if NET.graph.architecture(gates) not in ranked]
    assert len(strange) == wild
    assert bool(within_all(one.budgets, torch.stack(racers)).all())
    assert [gates.tolist() for gates in one.racers(ranked)] == [gates.tolist() for gates in racers]


def test_samples_of_the_race_do_not_ask_what_gamma_has_learned() -> None:
    """It may have learned from shared weights that mislead; only the filling up prefers what it does."""
    eager, shy = chooser(learned=6.0, race=4, wild=4), chooser(learned=-6.0, race=4, wild=4)
    assert [gates.tolist() for gates in eager.racers([])] == [gates.tolist() for gates in shy.racers([])]


@pytest.mark.parametrize("settle", ["climb", "local", "evolution"])
def test_starts_follow_gamma_only_where_settle_asks_it(settle: str) -> None:
    sizes = {
        logit: torch.stack(list(chooser("macs<=99%", logit, settle=settle).starts(8, []))).sum(1).tolist()
        for logit in (-1.0, 1.0)
    }
    assert (sizes[-1.0] == sizes[1.0]) == (settle != "climb")


def test_what_was_seen_to_be_good_is_a_start() -> None:
    one, seen = chooser(), candidates(chooser())[0].gates()
    assert any(torch.equal(gates, seen) for gates in one.starts(3, [seen]))


def test_the_first_that_holds_is_chosen_and_those_after_it_come_next() -> None:
    one = chooser()
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
    assert 0 < fast().wild < fast().race


def test_a_recipe_may_ask_for_samples_of_more_capacity() -> None:
    def mean(rows: Sequence[torch.Tensor]) -> float:
        return float(capacity_of(NET)(torch.stack(list(rows))).mean())

    few, many = (chooser(race=4, wild=4, spare=spare) for spare in (1, 4))
    assert mean(list(many.starts(8, []))[1:]) > mean(list(few.starts(8, []))[1:])
    assert mean(many.racers([])) > mean(few.racers([]))
