"""The race: who takes part, what everybody is given, and that the best one goes on with what it has learned."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from budgetnet.evaluation import evaluate
from budgetnet.extract import extract
from budgetnet.race import APART, Race, distance, field_of
from budgetnet.recipes import fast, fixed, learning_rate, paper
from budgetnet.search import PHASES, Loop
from budgetnet.supernet import call
from tests.small_runs import Kept, make_loop, short
from tests.strategies import examples

EDGES = 5
CANDIDATES = st.lists(st.integers(1, 2**EDGES - 1), min_size=1, max_size=9, unique=True)


def row(number: int) -> Tensor:
    return torch.tensor([bool(number >> edge & 1) for edge in range(EDGES)])


@given(st.integers(1, 2**EDGES - 1), st.integers(1, 2**EDGES - 1))
@examples(60)
def test_the_distance_is_the_share_of_weight_that_only_one_of_two_has(a: int, b: int) -> None:
    weights = [0.5, 1.0, 2.0, 4.0, 8.0]
    one, other = ({edge for edge in range(EDGES) if number >> edge & 1} for number in (a, b))
    expected = sum(weights[e] for e in one ^ other) / sum(weights[e] for e in one | other)
    assert distance(row(a), row(b), torch.tensor(weights)) == pytest.approx(expected)


@given(CANDIDATES, st.integers(1, 6))
@examples(100)
def test_the_field_has_the_best_and_prefers_those_apart(numbers: list[int], count: int) -> None:
    weights = torch.tensor([1.0, 1.0, 1.0, 1.0, 6.0])
    ranked = [row(number) for number in numbers]
    chosen = field_of(ranked, weights, count)
    places = [next(i for i, gates in enumerate(ranked) if gates is one) for one in chosen]
    assert len(places) == min(count, len(ranked))
    assert places == sorted(set(places))
    assert places[0] == 0
    apart = [0]
    for i in range(1, len(ranked)):
        if len(apart) < count and all(distance(ranked[i], ranked[j], weights) >= APART for j in apart):
            apart.append(i)
    others = [i for i in range(len(ranked)) if i not in apart]
    assert set(places) == {*apart, *others[: count - len(apart)]}


def test_the_best_weights_are_kept_as_they_were() -> None:
    race, weights = Race([row(1), row(2), row(3)]), {"w": torch.zeros(2)}
    for value, loss in enumerate((0.9, 0.4, 0.7)):
        assert not race.over
        weights["w"].fill_(value)
        race.finish(loss, weights)
    assert race.over
    assert race.best is not None
    assert race.best["w"].tolist() == [1.0, 1.0]
    assert [gates.tolist() for gates in race.ranked()] == [row(n).tolist() for n in (2, 3, 1)]
    again = Race(**race.state())
    assert (again.losses, again.place) == (race.losses, 3)


def raced(race_epochs: float = 0.6, **options: Any) -> tuple[Loop, list[dict[str, Any]]]:
    saved: list[dict[str, Any]] = []
    loop = make_loop(recipe=short(finish_epochs=1, race_epochs=race_epochs), **options)
    loop.save = lambda state: saved.append(copy.deepcopy(state))
    loop.run()
    return loop, saved


def trained_alone(loop: Loop, start: dict[str, Any], gates: Tensor) -> tuple[float, dict[str, Tensor]]:
    """What a racer comes to if it is trained by a plain loop from the shared weights: its loss and weights."""
    loop.net.load_state_dict(start["supernet"])
    model = extract(loop.net, loop.net.graph.architecture(gates))
    recipe, steps = loop.recipe, loop.total_steps("race")
    optimizer = torch.optim.SGD(model.parameters(), 1.0, recipe.momentum, nesterov=True, weight_decay=5e-4)
    for step, (inputs, targets) in zip(range(steps), loop.train.training(300_000), strict=False):
        optimizer.param_groups[0]["lr"] = learning_rate(recipe, step / steps, recipe.finish_rise)
        optimizer.zero_grad()
        model.train()
        torch.nn.functional.cross_entropy(call(model, inputs), targets).backward()
        optimizer.step()
    loss, _ = evaluate(model, loop.task, loop.validation.evaluation())
    return loss, dict(model.state_dict())


def test_every_racer_starts_from_the_shared_weights_and_the_best_one_is_finished_with_its_own() -> None:
    kept = Kept()
    loop, saved = raced(sink=kept)
    start = next(state for state in saved if PHASES[state["phase"]] == "race" and state["step"] == 0)
    losses = [r.values["validation_loss"] for r in kept.records if r.kind == "racer"]
    racers = start["race"]["racers"]
    assert len(racers) == len(losses) >= 2
    alone = [trained_alone(loop, start, gates) for gates in racers]
    assert losses == pytest.approx([loss for loss, _ in alone], rel=1e-4)
    best = losses.index(min(losses))
    finish = next(state for state in saved if PHASES[state["phase"]] == "finish" and state["step"] == 0)
    assert torch.equal(finish["architecture"], racers[best])
    for name, value in alone[best][1].items():
        assert torch.allclose(finish["weights"][name], value, atol=1e-5), name
    others = [loop.net.graph.architecture(racers[i]).live() for i in sorted(range(len(losses)), key=losses.__getitem__)]
    assert [a.live() for a in loop.runners_up[: len(racers) - 1]] == others[1:]
    assert all(loop.budgets[0].meter(loop.net.graph.architecture(g)) <= loop.budgets[0].maximum for g in racers)


def test_a_run_goes_on_from_each_of_its_checkpoints_to_the_same_network() -> None:
    loop, saved = raced(race_epochs=1.4)
    assert sum(state["phase"] == PHASES.index("race") for state in saved) >= 5, "also between training and judging"
    for state in saved:
        again = make_loop(recipe=loop.recipe)
        again.load_state(copy.deepcopy(state))
        outcome = again.run()
        assert outcome.architecture == loop.architecture, (state["phase"], state["step"])
        for name, value in outcome.model.state_dict().items():
            assert torch.equal(value, loop.module.state_dict()[name]), (state["phase"], state["step"], name)


def test_a_single_candidate_does_not_race() -> None:
    kept = Kept()
    loop = make_loop(recipe=short(settle_evaluations=1), sink=kept, budgets=["macs<=100%"])
    loop.recipe = short(settle_evaluations=1, race=1)
    loop.run()
    assert not any(r.phase == "race" for r in kept.records)
    assert sum(r.kind == "chosen" for r in kept.records) == 1


def test_only_a_recipe_that_settles_races() -> None:
    assert fast().races
    assert not paper().races
    assert not fixed(fast()).races
    assert math.isclose(fast(32).race_epochs, 2 * fast(16).race_epochs)
    assert (paper().epochs, fixed(fast(9)).epochs) == (300, 9)
    assert fast(16).epochs == pytest.approx(0.5 + 2.5 + 4 * 0.75 + 16)
