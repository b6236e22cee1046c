"""The numbers of the paper's recipe, learning rates, and what a recipe refuses."""

import dataclasses
import math

import pytest

from budgetnet.errors import UserError
from budgetnet.strategies.recipes import FIXED, PER_EXAMPLE, RANGES, Recipe, choose, fast, fixed, learning_rate, paper

RISE = 0.3
"""A share of the schedule for the tests of its form."""


def test_the_paper_recipe_is_the_papers() -> None:
    recipe = paper()
    assert (recipe.warmup_epochs, recipe.search_epochs, recipe.finish_epochs) == (50, 250, 0)
    assert (recipe.batch_size, recipe.groups) == (64, PER_EXAMPLE)
    assert (recipe.lr, recipe.momentum, recipe.nesterov, recipe.weight_decay) == (0.1, 0.9, False, 1e-4)
    assert (recipe.warmup, recipe.initial_logit, recipe.policy_lr) == ("full", 3.0, 1e-3)
    assert (recipe.baseline, recipe.standardise, recipe.adaptive, recipe.anneal) == ("batch-mean", False, False, 0.0)
    assert not recipe.settles
    assert (recipe.stratified, recipe.connected) == (False, False)
    assert recipe.policy_rate(10) == recipe.policy_rate(100_000) == 1e-3


@pytest.mark.parametrize(
    ("task", "epoch", "rate"),
    [
        ("classification", 0, 0.1),
        ("classification", 149, 0.1),
        ("classification", 150, 0.01),
        ("classification", 224, 0.01),
        ("classification", 225, 0.001),
        ("classification", 299, 0.001),
        ("segmentation", 129, 0.1),
        ("segmentation", 130, 0.01),
        ("segmentation", 199, 0.01),
    ],
)
def test_the_papers_rate_is_divided_by_ten_when_it_says(task: str, epoch: int, rate: float) -> None:
    total = 300 if task == "classification" else 200
    recipe = choose("paper", None, task)
    assert recipe.warmup_epochs + recipe.search_epochs == pytest.approx(total)
    assert learning_rate(recipe, epoch / total, rise=0.2) == pytest.approx(rate)


def test_one_cycle_rises_then_falls_to_almost_nothing() -> None:
    recipe = fast()
    rates = [learning_rate(recipe, i / 1000, RISE) for i in range(1001)]
    top = rates.index(max(rates))
    assert top == pytest.approx(1000 * RISE, abs=1)
    assert max(rates) == pytest.approx(recipe.lr, rel=1e-3)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0 < rates[-1] < 1e-3 * recipe.lr
    middle = RISE + (1 - RISE) / 2
    assert learning_rate(recipe, middle, RISE) == pytest.approx(recipe.lr / 2, rel=1e-3)


def test_noise_carries_gamma_equally_far_in_searches_of_any_length() -> None:
    recipe = fast()
    travels = [recipe.policy_rate(steps) * math.sqrt(steps) for steps in (1, 50, 4000)]
    assert travels == pytest.approx([recipe.policy_travel] * 3)


def test_a_fixed_architecture_trains_as_long_as_the_search_it_is_compared_with() -> None:
    assert fixed(fast(16)).finish_epochs == 16
    assert fixed(paper()).finish_epochs == 300
    for recipe in (fixed(fast(16)), fixed(paper())):
        assert recipe.warmup_epochs == recipe.search_epochs == 0
        assert not recipe.settles


@pytest.mark.parametrize("epochs", [0, -1, math.nan, math.inf])
def test_epochs_that_cannot_be_trained_are_refused(epochs: float) -> None:
    with pytest.raises(UserError, match="epochs"):
        choose("fast", epochs, "classification")


def test_an_unknown_recipe_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"'slow'.*fast or paper"):
        choose("slow", None, "classification")


def test_a_recipe_takes_options() -> None:
    recipe = choose("fast:anneal=0.8,settle=evolution,policy_lr=0.01,standardise=false,settle_evaluations=5", 4, "x")
    assert (recipe.anneal, recipe.settle, recipe.policy_lr, recipe.standardise) == (0.8, "evolution", 0.01, False)
    assert (recipe.settle_evaluations, recipe.finish_epochs, recipe.lr) == (5, 4, fast().lr)
    assert choose("paper:policy_lr=none", None, "classification").policy_lr is None
    assert choose("fast", None, "classification") == fast()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast:anneal=much", "anneal of the recipe fast is a number, not 'much'"),
        ("fast:settle=guess", "settle=guess .* climb or evolution or local"),
        ("fast:speed=9", "no option 'speed=9'"),
        ("fast:finish_epochs=3", "no option 'finish_epochs=3'"),
        ("paper:baseline=none", "baseline=none .* leave-one-out or batch-mean"),
        ("fast:race=0", "race=0 is out of range .* 1 or more"),
        ("fast:wild=-1", "wild=-1 .* 0 or more"),
        ("fast:lr=0", "lr=0.0 .* above zero"),
        ("fast:lr=inf", "lr=inf .* above zero"),
        ("fast:search_epochs=-2", "search_epochs=-2.0 .* 0 or more"),
        ("fast:rise=1", "rise=1.0 .* 0 or more and less than 1"),
        ("fast:momentum=1", "momentum=1.0 .* less than 1"),
        ("fast:anneal=1.5", "anneal=1.5 .* 0 or more and 1 at most"),
        ("fast:initial_logit=nan", "initial_logit=nan .* a number"),
    ],
)
def test_options_that_a_recipe_does_not_have_or_could_not_use_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        choose(text, None, "classification")


def test_every_number_of_a_recipe_has_a_range() -> None:
    numbers = {field.name for field in dataclasses.fields(Recipe) if {"int", "float"} & set(field.type.split(" | "))}
    assert set(RANGES) == numbers - set(FIXED)


def test_more_finalists_than_racers_cost_no_more_than_all_of_them() -> None:
    assert choose("fast:finalists=9", 16, "x").losers_epochs == choose("fast:finalists=4", 16, "x").losers_epochs == 9
