"""The numbers of the paper's recipe."""

import pytest
import torch

from budgetnet.data.feeds import make_feed
from budgetnet.strategies.named import choose
from budgetnet.strategies.paper import PaperRecipe, TakeMode, paper
from budgetnet.strategies.phases import Finish, Search, WarmUp
from budgetnet.strategies.policy import PolicySettings
from budgetnet.strategies.sampling import PER_EXAMPLE
from tests.small_runs import vectors

FEED = make_feed(vectors(64), 32, 0)


def test_the_paper_recipe_is_the_papers() -> None:
    recipe = paper()
    assert (recipe.warmup_epochs, recipe.search_epochs, recipe.finish_epochs) == (50, 250, 0)
    assert (recipe.batch_size, recipe.groups) == (64, PER_EXAMPLE)
    assert (recipe.lr, recipe.momentum, recipe.weight_decay) == (0.1, 0.9, 1e-4)
    (group,) = recipe.make_optimizer(torch.nn.Linear(1, 1)).param_groups
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"]) == (0.1, 0.9, False, 1e-4)
    warmup, search, mode = recipe.phases(FEED, 0)
    assert isinstance(warmup, WarmUp)
    assert isinstance(search, Search)
    assert isinstance(mode, TakeMode)
    assert warmup.full
    assert (search.sampling.stratified, search.sampling.connected) == (False, False)
    expected = PolicySettings(1e-3, recipe.penalty, adaptive=False, baseline="batch-mean", standardise=False)
    assert recipe.policy(FEED) == expected
    assert (recipe.steps_back, recipe.keeps_initial_weights) == (False, False)


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
    assert isinstance(recipe, PaperRecipe)
    assert recipe.warmup_epochs + recipe.search_epochs == pytest.approx(total)
    warmup, search, _ = recipe.phases(FEED, 0)
    assert isinstance(search, Search)
    progress = (epoch - recipe.warmup_epochs) / recipe.search_epochs
    assert (warmup.rate(epoch / 50) if epoch < 50 else search.rate(progress)) == pytest.approx(rate)  # type: ignore[attr-defined]
    (alone,) = recipe.alone().phases(FEED, 0, fixed=True)
    assert isinstance(alone, Finish)
    assert alone.rate(epoch / total) == pytest.approx(rate)
