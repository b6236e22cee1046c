"""What a recipe says, and what it refuses."""

import dataclasses
import math
from dataclasses import replace

import pytest

from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.strategies.named import choose
from budgetnet.strategies.paper import paper
from budgetnet.strategies.recipes import BOUNDED, OPTIONS, Recipe, fast
from budgetnet.training import optimization
from budgetnet.training.optimization import Optimization
from tests.small_runs import vectors


def test_a_fixed_architecture_trains_as_long_as_the_search_it_is_compared_with() -> None:
    assert fast(16).alone().finish_epochs == 16
    assert paper().alone().finish_epochs == 300
    feed = make_feed(vectors(64), 32, 0)
    for recipe in (fast(16).alone(), paper().alone()):
        assert recipe.warmup_epochs == recipe.search_epochs == 0
        assert [phase.name for phase in recipe.phases(feed, 0, fixed=True)] == ["finish"]


@pytest.mark.parametrize("epochs", [0, -1, math.nan, math.inf])
def test_epochs_that_cannot_be_trained_are_refused(epochs: float) -> None:
    with pytest.raises(UserError, match="epochs"):
        choose("fast", epochs, "classification")


def test_an_unknown_recipe_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"'slow'.*fast, trained or paper"):
        choose("slow", None, "classification")


def test_a_recipe_takes_options() -> None:
    recipe = choose("fast:racers=6,choose_examples=5,policy_lr=0.01", 4, "x")
    assert isinstance(recipe, Recipe)
    assert (recipe.racers, recipe.choose_examples, recipe.policy_lr) == (6, 5, 0.01)
    assert (recipe.finish_epochs, recipe.weights) == (4, fast().weights)
    assert choose("fast:policy_lr=none", None, "classification") == replace(fast(), name="fast:policy_lr=none")
    assert choose("fast", None, "classification") == fast()
    assert choose("paper:lr=0.5", None, "classification") == replace(paper(), name="paper:lr=0.5", lr=0.5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast:lr=much", "lr of the recipe fast is a number, not 'much'"),
        ("fast:settle=climb", "no option 'settle=climb'"),
        ("fast:speed=9", "no option 'speed=9'"),
        ("fast:finish_epochs=3", "no option 'finish_epochs=3'"),
        ("paper:racers=3", "no option 'racers=3'"),
        ("paper:lr=0", "lr=0.0 is out of range"),
        ("fast:racers=0", "racers=0 is out of range .* 1 or more"),
        ("fast:policy_lr=-1", "policy_lr=-1.0 .* 0 or more"),
        ("fast:lr=0", "lr=0.0 .* above zero"),
        ("fast:lr=inf", "lr=inf .* above zero"),
        ("fast:search_epochs=-2", "search_epochs=-2.0 .* 0 or more"),
        ("fast:momentum=1", "momentum=1.0 .* 0 or more and less than 1"),
        ("fast:candidates=5", "no option 'candidates=5'"),
        ("fast:weight_decay=nan", "weight_decay=nan .* 0 or more"),
    ],
)
def test_options_that_a_recipe_does_not_have_or_could_not_use_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        choose(text, None, "classification")


def test_every_number_of_a_recipe_has_a_range() -> None:
    for kind, bounds in ((Recipe, BOUNDED), (Optimization, optimization.BOUNDED)):
        fields = dataclasses.fields(kind)
        numbers = {field.name for field in fields if {"int", "float"} & set(field.type.split(" | "))}
        assert set(bounds) == numbers & set(OPTIONS)
    assert len(dataclasses.fields(Recipe)) <= 17


def test_more_finalists_than_racers_cost_no_more_than_all_of_them() -> None:
    assert replace(fast(), finalists=9).losers_epochs == replace(fast(), finalists=4).losers_epochs == 9
