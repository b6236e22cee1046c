"""The race: who takes part, what everybody is given, and that the best one goes on with what it has learned."""

import copy
import itertools
import json
import math
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.supernet import call
from budgetnet.records.records import Kept
from budgetnet.strategies.named import choose
from budgetnet.strategies.paper import paper
from budgetnet.strategies.race import APART, Race, distance, field_of
from budgetnet.strategies.recipes import fast
from budgetnet.strategies.runner import Runner
from budgetnet.training import trainer as trainer_module
from budgetnet.training.tasks import Task
from tests.random_graphs import examples
from tests.small_runs import make_runner, mlp, short

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
        race.observe(loss, 1.0)
        assert race.finish(weights) == loss
    assert race.over
    assert race.ranked() == [1, 2, 0]
    assert {place: kept["w"].tolist() for place, kept in race.weights.items()} == {1: [1.0, 1.0]}
    again = Race(**race.state_dict())
    assert (again.losses, again.over) == (race.losses, True)


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4, 0.5, math.inf]), min_size=2, max_size=6, unique=True),
    st.lists(st.sampled_from([0.6, 0.7, 0.8, 0.9, math.inf]), min_size=6, max_size=6),
    st.integers(1, 4),
)
@examples(200)
def test_the_best_of_the_first_round_go_on_and_the_best_of_the_second_wins(
    first: list[float], second: list[float], finalists: int
) -> None:
    race, taken = Race([row(n) for n in range(1, len(first) + 1)], ((10, finalists), (20, 1))), list[int]()
    alive, rounds = True, [dict(enumerate(first)), dict[int, float]()]
    while alive and not race.over:
        place, final = race.place, race.rung == 1
        assert (race.behind, race.steps) == (
            10 * len(taken) + 10 * max(0, len(taken) - len(first)),
            20 if final else 10,
        )
        loss = second[place] if final else first[place]
        rounds[final][place] = loss
        taken.append(place)
        if loss < math.inf:
            race.observe(loss, 1.0)
            race.finish({"w": torch.tensor([10 * final + place])})
        else:
            alive = race.withdraw()
        race = Race(**race.state_dict())
    well = sorted((loss, place) for place, loss in enumerate(first) if loss < math.inf)
    best = [place for _, place in well[:finalists]] if min(finalists, len(well)) > 1 else []
    assert taken[: len(first)] == list(range(len(first)))
    assert taken[len(first) :] == best
    ended = sorted((loss, place) for place, loss in rounds[1].items() if loss < math.inf)
    expected = [place for _, place in ended] + [place for _, place in well if place not in best]
    assert race.ranked() == expected
    assert alive == bool(race.weights)
    if alive:
        winner = race.ranked()[0]
        assert race.weights[winner]["w"].item() == 10 * bool(best) + winner
        assert len(race.weights) <= finalists


def test_a_racer_is_judged_by_the_end_of_its_training() -> None:
    race = Race([row(1), row(2)])
    for step in range(1, 9):
        race.observe(float(step), step / 8)
    assert race.finish({}) == 7.5
    race.observe(3.0, 1.7)  # a time limit may end it with its first step
    assert race.finish({}) == 3.0
    assert race.losses == [[7.5, 3.0]]


def raced(race_epochs: float = 0.6, final_epochs: float = 0.8, **options: Any) -> tuple[Runner, list[dict[str, Any]]]:
    saved: list[dict[str, Any]] = []
    runner = make_runner(recipe=short(finish_epochs=4, race_epochs=race_epochs, final_epochs=final_epochs), **options)
    runner.trainer.save = lambda state: saved.append(copy.deepcopy(state))
    runner.run()
    return runner, saved


def trained_alone(runner: Runner, gates: Tensor) -> list[tuple[float, dict[str, Tensor]]]:
    """What a racer comes to in each round if a plain runner trains it from fresh weights: its losses and weights."""
    fresh = mlp()
    model = extract(fresh, fresh.graph.architecture(gates))
    recipe, first, second = short(), 3, 4
    batches = itertools.chain(*(runner.trainer.train.training(300_000 + epoch) for epoch in range(4)))
    found = []
    for steps in (first, second):
        optimizer = torch.optim.SGD(model.parameters(), 1.0, recipe.weights.momentum, nesterov=True, weight_decay=5e-4)
        losses = []
        for step, (inputs, targets) in zip(range(steps), batches, strict=False):
            rises = steps == first and 4 * step < steps
            optimizer.param_groups[0]["lr"] = recipe.weights.lr * (max(4 * step / steps, 0.04) if rises else 1.0001)
            optimizer.zero_grad()
            model.train()
            loss = torch.nn.functional.cross_entropy(call(model, inputs), targets)
            loss.backward()
            optimizer.step()
            losses += [float(loss.detach())] if 4 * (step + 1) > 3 * steps else []
        found.append((fmean(losses), {name: value.clone() for name, value in model.state_dict().items()}))
    return found


def test_every_racer_starts_from_fresh_weights_and_the_best_one_is_finished_with_its_own() -> None:
    kept = Kept()
    runner, saved = raced(sink=kept)
    start = next(state for state in saved if state["phase"] == "race" and state["step"] == 0)
    losses = [r.values["loss"] for r in kept.records if r.kind == "racer"]
    racers = start["race"]["racers"]
    assert len(losses) == len(racers) + 2
    alone = [trained_alone(runner, gates) for gates in racers]
    assert losses[: len(racers)] == pytest.approx([rounds[0][0] for rounds in alone], rel=1e-4)
    order = sorted(range(len(racers)), key=losses.__getitem__)
    assert losses[len(racers) :] == pytest.approx([alone[place][1][0] for place in order[:2]], rel=1e-4)
    order[:2] = sorted(order[:2], key=lambda place: alone[place][1][0])
    finish = next(state for state in saved if state["phase"] == "finish" and state["step"] == 0)
    assert torch.equal(finish["architecture"], racers[order[0]])
    for name, value in alone[order[0]][1][1].items():
        assert torch.allclose(finish["weights"][name], value, atol=1e-4), name
    others = [runner.state.net.graph.architecture(racers[place]).live() for place in order[1:]]
    assert [a.live() for a in runner.state.runners_up[: len(others)]] == others
    assert all(
        runner.state.budgets[0].meter(runner.state.net.graph.architecture(g)) <= runner.state.budgets[0].maximum
        for g in racers
    )
    steps = next(r.values["steps"] for r in kept.records if (r.kind, r.phase) == ("phase", "finish"))
    assert steps == round((4 - 0.6 - 0.8) * runner.trainer.train.steps)


@pytest.mark.parametrize("race_epochs", [1.0, 1.4])
def test_a_run_goes_on_from_each_of_its_checkpoints_to_the_same_network(
    race_epochs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from the middle of a racer's training, or between its training and its judging."""
    monkeypatch.setattr(trainer_module, "EPOCH_SECONDS", -1.0)
    runner, saved = raced(race_epochs, final_epochs=1.2)
    racing = [state for state in saved if state["phase"] == "race"]
    within = [state["step"] > 0 for state in racing]
    assert len(racing) >= 4
    assert any(Race(**state["race"]).rung == 1 for state in racing)
    assert any(within)
    for state in saved:
        again = make_runner(recipe=short(finish_epochs=4, race_epochs=race_epochs, final_epochs=1.2))
        again.load_state_dict(copy.deepcopy(state))
        outcome = again.run()
        assert outcome.architecture == runner.state.architecture, (state["phase"], state["step"])
        for name, value in outcome.model.state_dict().items():
            assert torch.equal(value, runner.state.fit.module.state_dict()[name]), (state["phase"], state["step"], name)


class Spoilt:
    """A loss that is no number while some racers run."""

    def __init__(self, *racers: int) -> None:
        self.racers, self.runner = racers, None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        runner: Any = self.runner
        state = runner.state
        spoilt = state.phase == "race" and state.race.place in self.racers and state.fit.step > 1
        return cross_entropy(outputs, targets) * (math.nan if spoilt else 1.0)


def test_racers_that_diverge_are_out_and_the_others_are_judged_as_without_them() -> None:
    kept, all_well = Kept(), Kept()
    raced(sink=all_well)
    *expected, _, _ = (r.values["loss"] for r in all_well.records if r.kind == "racer")
    loss = Spoilt(0, expected.index(min(expected)))
    runner = make_runner(recipe=short(finish_epochs=4, race_epochs=0.6, final_epochs=0.8), sink=kept)
    runner.trainer.task, loss.runner = Task(loss), runner  # type: ignore[assignment]
    outcome = runner.run()
    found = [r.values for r in kept.records if r.kind == "racer"][: len(expected)]
    assert all("nan" in found[place]["diverged"] for place in loss.racers)
    well = {place: value["loss"] for place, value in enumerate(found) if place not in loss.racers}
    assert well == pytest.approx({place: expected[place] for place in well})
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    racers = [r.values for r in kept.records if r.kind == "chosen"]
    assert len(racers) == 1
    assert outcome.architecture.connected
    assert len(runner.state.runners_up) == len(set(runner.state.runners_up))


def test_a_race_in_which_all_diverge_stops_the_run_with_a_sentence() -> None:
    runner, loss = make_runner(recipe=short(finish_epochs=3, race_epochs=0.6)), Spoilt(*range(10))
    runner.trainer.task, loss.runner = Task(loss), runner  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"^the loss is nan in step \d+ of the race phase"):
        runner.run()


class Overflowing:
    """A loss that is finite while a network is trained, and overflows where a racer, or all of them, is looked at."""

    def __init__(self, *racers: int) -> None:
        self.racers, self.runner = racers, None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        runner: Any = self.runner
        state = runner.state
        spoilt = state.phase == "race" and state.race.place in self.racers and not outputs.requires_grad
        return cross_entropy(outputs, targets) * (math.inf if spoilt else 1.0)


def test_a_racer_whose_validation_loss_overflows_is_out() -> None:
    kept = Kept()
    runner, loss = make_runner(recipe=short(finish_epochs=4, race_epochs=1.0), sink=kept), Overflowing(1)
    runner.trainer.task, loss.runner = Task(loss), runner  # type: ignore[assignment]
    outcome = runner.run()
    found = [r.values for r in kept.records if r.kind == "racer"]
    assert [place for place, value in enumerate(found) if "diverged" in value] == [1]
    assert "validation loss is not finite" in found[1]["diverged"]
    assert outcome.architecture.connected


def test_a_single_candidate_does_not_race() -> None:
    kept = Kept()
    make_runner(recipe=short(racers=1), sink=kept, budgets=["macs<=100%"]).run()
    assert not any(r.phase == "race" for r in kept.records)
    assert sum(r.kind == "chosen" for r in kept.records) == 1


def test_only_the_default_recipe_races() -> None:
    assert fast().races
    assert not paper().keeps_initial_weights
    assert not fast().alone().races
    assert math.isclose(fast(16).race_epochs, 2 * fast(8).race_epochs)
    for epochs in (32, 64, 300):
        assert fast(epochs).epochs - epochs == fast(16).epochs - 16, "the search does not grow with the training"
    assert fast(64).epochs <= 1.2 * 64
    assert (paper().epochs, fast(9).alone().epochs) == (300, 9)
    assert fast(16).epochs == pytest.approx(0.25 + 1.25 + 4 * 1 + 2 * 2 + 13)
    assert replace(fast(16), final_epochs=0).epochs == replace(fast(16), finalists=1).epochs
    assert replace(fast(16), finalists=1).epochs == pytest.approx(0.25 + 1.25 + 4 * 1 + 15)


def test_a_recipe_without_a_final_races_once() -> None:
    kept = Kept()
    runner = make_runner(recipe=short(final_epochs=0), sink=kept)
    runner.run()
    racers = [r for r in kept.records if r.kind == "racer"]
    assert racers[-1].step == len(racers) * round(short().race_epochs * runner.trainer.train.steps)
    assert runner.state.raced == short().race_epochs


@pytest.mark.parametrize("options", ["race_epochs=16", "final_epochs=15", "race_epochs=9,final_epochs=9"])
def test_a_race_that_leaves_nothing_for_the_finish_is_refused(options: str) -> None:
    with pytest.raises(UserError, match=r"^a race of (17|18|16) epochs leaves nothing of the 16"):
        choose(f"fast:{options}", 16, "classification")


def test_a_contestant_that_a_time_limit_left_no_step_is_last_but_may_still_win() -> None:
    gates = [torch.tensor([True, False]), torch.tensor([False, True])]
    race = Race(list(gates), ((4, 1),))
    race.finish({"w": torch.zeros(1)})
    race.observe(9.0, 1.0)
    race.finish({"w": torch.ones(1)})
    assert race.ranked() == [1, 0]
    nobody = Race(list(gates), ((4, 1),))
    for _ in gates:
        nobody.finish({"w": torch.zeros(1)})
    assert nobody.over
    assert nobody.ranked() == [0, 1]
