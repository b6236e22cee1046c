"""Who is looked at: what Γ proposes, the racers, and the first candidate that holds."""

import hashlib

import pytest
import torch

from budgetnet.budgets.budget import parse_all, within_all
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture
from budgetnet.strategies.candidates import Candidates, Samples
from budgetnet.strategies.race import field_of
from budgetnet.strategies.start import relative_costs
from tests.random_graphs import generator, small_space

NET = small_space("resnet-fabric", width=3)


def proposer(budget: str = "macs<=40%", learned: float = 0.0) -> Candidates:
    def seeded(purpose: str) -> torch.Generator:
        return generator(hashlib.blake2b(purpose.encode()).digest()[0])

    learned_now = EdgeDistribution(NET.graph, learned)
    return Candidates(NET.graph, parse_all([budget], NET), learned_now, seeded, lambda: [torch.zeros(1)])


def candidates(one: Candidates, count: int = 12) -> list[Architecture]:
    """Candidates, in any order."""
    return [NET.graph.architecture(gates) for gates in list(one.proposals(count))[1:]]


def test_racers_are_the_first_candidates_that_are_well_apart() -> None:
    one = proposer()
    ranked = candidates(one)
    racers = one.racers(ranked, 6)
    best = field_of([a.live().gates() for a in ranked], relative_costs(one.budgets, NET.graph), 6)
    assert [gates.tolist() for gates in racers] == [gates.tolist() for gates in best]
    assert bool(within_all(one.budgets, torch.stack(racers)).all())
    assert [gates.tolist() for gates in one.racers(ranked, 6)] == [gates.tolist() for gates in racers]


def test_proposals_follow_gamma() -> None:
    sizes = [torch.stack(list(proposer("macs<=99%", logit).proposals(8))).sum(1).tolist() for logit in (-1.0, 1.0)]
    assert sizes[0] != sizes[1]


def test_the_mode_of_gamma_comes_first_and_nobody_is_scored() -> None:
    one = proposer(learned=-0.5)
    found = Samples().rank(one, NET.graph.full.gates(), lambda gates: pytest.fail("scored"), 5)
    moves = one.moves()
    mode = moves.shrink(one.learned.mode().gates())
    assert mode is not None
    assert torch.equal(found[0], moves.fill(mode))
    assert len({tuple(gates.tolist()) for gates in found}) == len(found) == 5
    assert bool(within_all(one.budgets, torch.stack(found)).all())


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
