"""Recipes: every choice of the training loop as one frozen value, and learning rates as functions of progress."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from budgetnet.errors import UserError
from budgetnet.naming import keyword_arguments

PER_EXAMPLE = 0
"""Groups: one architecture per example, the paper's setting."""
RECIPES = ("fast", "paper")
CHOICES = {
    "schedule": ("one-cycle", "steps"),
    "warmup": ("sampled", "full"),
    "baseline": ("leave-one-out", "batch-mean"),
    "settle": ("climb", "evolution", "local"),
}
FIXED = ("name", "finish_epochs", "batch_size", "groups", "penalty", "milestones")
"""Fields that have a setting of their own, or none."""
RANGES = {
    **dict.fromkeys(("momentum", "rise", "finish_rise"), (0.0, math.nextafter(1, 0))),
    **dict.fromkeys(("anneal", "settle_share"), (0.0, 1.0)),
    **dict.fromkeys(("warmup_epochs", "search_epochs", "race_epochs", "final_epochs"), (0.0, math.inf)),
    **dict.fromkeys(("weight_decay", "policy_lr", "policy_travel", "settle_evaluations", "wild"), (0.0, math.inf)),
    **dict.fromkeys(("settle_examples", "race", "finalists", "spare"), (1.0, math.inf)),
    "lr": (math.nextafter(0, 1), math.inf),
    "initial_logit": (-math.inf, math.inf),
}
"""The least and the most that a number may be, which must be finite."""


@dataclass(frozen=True)
class Recipe:
    """How a run is trained. Epochs are of the training set; `groups` architectures share a batch."""

    name: str
    warmup_epochs: float
    search_epochs: float
    finish_epochs: float
    batch_size: int = 128
    groups: int = 8
    lr: float = 0.2
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: str = "one-cycle"
    rise: float = 0.2
    """Share of a one-cycle schedule in which the rate rises, from fresh weights."""
    finish_rise: float = 0.05
    """The same for the finish, whose weights are inherited."""
    milestones: tuple[float, ...] = ()
    """Progress (of all epochs) at which the rate of the `steps` schedule is divided by ten."""
    warmup: str = "sampled"
    """`full`: the whole super network (paper); `sampled`: architectures from the initial Γ, fair to every edge."""
    initial_logit: float | None = None
    """Γ's start; None finds the value at which a sample costs what the budgets allow."""
    policy_lr: float | None = None
    """Γ's rate; None is `policy_travel` over the root of the number of search steps."""
    policy_travel: float = 0.05
    """How far noise alone carries a logit in the whole search, whatever its length; little, so that every edge keeps
    its share of the training: one that loses it looks useless on shared weights, whatever it is worth."""
    stratified: bool = True
    """Share every edge out evenly among the architectures of a batch, each of which still follows Γ by itself."""
    connected: bool = True
    """Draw again what does not reach the output: Γ is then learned given that a network connects."""
    standardise: bool = True
    """Divide the advantages of a batch by their spread, so that Γ's step does not depend on the loss's scale."""
    baseline: str = "leave-one-out"
    penalty: float = 1.0
    adaptive: bool = True
    """Adapt λ to the observed violation; otherwise it stays at `penalty`."""
    anneal: float = 0.0
    """Share of the search phase in which the budget falls from the full cost to its target."""
    settle: str = "climb"
    """How an architecture is chosen on shared weights: `climb` starts from Γ, `evolution` and `local` do without it."""
    settle_evaluations: int = 96
    """Candidates at most; fewer if they would take more than `settle_share` of the finish's compute."""
    settle_share: float = 0.12
    settle_examples: int = 1024
    race: int = 1
    """Candidates that are trained for `race_epochs` each; the one that learns best is finished."""
    race_epochs: float = 0.0
    finalists: int = 1
    """How many of them, if more than one, are trained for `final_epochs` more before one is chosen."""
    final_epochs: float = 0.0
    wild: int = 0
    """How many of them are samples with all edges equally likely, whatever shared weights say of them."""
    spare: int = 1
    """How many samples there should be for each that starts settle or races, to take those of most capacity."""

    def __post_init__(self) -> None:
        for field, choices in CHOICES.items():
            if getattr(self, field) not in choices:
                raise UserError(f"{field}={getattr(self, field)} is not known to a recipe; use {' or '.join(choices)}")
        for field, (least, most) in RANGES.items():
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and least <= value <= most):
                raise UserError(f"{field}={value} is out of range for a recipe; give {_words(least, most)}")
        if self.races and self.winner_epochs >= self.finish_epochs:
            raise UserError(
                f"a race of {self.winner_epochs:g} epochs leaves nothing of the {self.finish_epochs:g} for the finish, "
                "of which it is a part; give fewer race_epochs or final_epochs, or race=1"
            )

    @property
    def settles(self) -> bool:
        """Whether the result is settled and finished; the paper takes Γ's mode as it is."""
        return self.settle_evaluations > 0

    @property
    def races(self) -> bool:
        """Whether candidates of settle compete before one of them is finished."""
        return self.settles and self.race > 1 and self.race_epochs > 0

    @property
    def epochs(self) -> float:
        """Of all phases together."""
        return self.warmup_epochs + self.search_epochs + self.losers_epochs + self.finish_epochs

    @property
    def final(self) -> bool:
        """Whether the race has a second round."""
        return self.races and self.finalists > 1 and self.final_epochs > 0

    @property
    def winner_epochs(self) -> float:
        """Of the winner's race, which count as a part of its finish."""
        return (self.race_epochs if self.races else 0.0) + (self.final_epochs if self.final else 0.0)

    @property
    def losers_epochs(self) -> float:
        """Epochs of those that did not win."""
        first = (self.race - 1) * self.race_epochs if self.races else 0.0
        return first + ((min(self.finalists, self.race) - 1) * self.final_epochs if self.final else 0.0)

    def policy_rate(self, steps: int) -> float:
        """Γ's rate in a search of so many steps; it does not follow θ's."""
        return self.policy_travel / math.sqrt(steps) if self.policy_lr is None else self.policy_lr


def _words(least: float, most: float) -> str:
    """A range of finite numbers, as one says it."""
    lower = f"{least:g} or more" if least in (0, 1) else "a number above zero" if least > 0 else "a number"
    upper = "" if most == math.inf else " and 1 at most" if most == 1 else " and less than 1"
    return lower + upper


def fast(epochs: float = 16) -> Recipe:
    """The default: sampled warm-up, policy gradient, settle, race, and `epochs` for the winner, its race included."""
    return Recipe(
        "fast",
        warmup_epochs=epochs * 0.25 / 16,
        search_epochs=epochs * 1.25 / 16,
        settle_share=0.03,
        race=4,
        wild=2,
        race_epochs=epochs * 1 / 16,
        finalists=2,
        final_epochs=epochs * 2 / 16,
        finish_epochs=epochs,
    )


def paper(epochs: float = 300, task: str = "classification") -> Recipe:
    """To the letter of the paper: fixed λ, batch-mean baseline, p > 0.5, one architecture per example, no finish."""
    warmup = 50 / 300 if task == "classification" else 50 / 200
    return Recipe(
        "paper",
        warmup_epochs=epochs * warmup,
        search_epochs=epochs * (1 - warmup),
        finish_epochs=0,
        batch_size=64,
        groups=PER_EXAMPLE,
        lr=0.1,
        nesterov=False,
        weight_decay=1e-4,
        schedule="steps",
        milestones=(150 / 300, 225 / 300) if task == "classification" else (130 / 200,),
        warmup="full",
        initial_logit=3.0,
        policy_lr=1e-3,
        stratified=False,
        connected=False,
        standardise=False,
        baseline="batch-mean",
        adaptive=False,
        settle_evaluations=0,
    )


def fixed(recipe: Recipe) -> Recipe:
    """The same recipe for one fixed architecture: all its epochs are finish."""
    total = recipe.finish_epochs or recipe.warmup_epochs + recipe.search_epochs
    return replace(
        recipe,
        warmup_epochs=0,
        search_epochs=0,
        finish_epochs=total,
        finish_rise=recipe.rise,
        settle_evaluations=0,
    )


def choose(text: str, epochs: float | None, task: str) -> Recipe:
    """A recipe by its name and options, such as `fast:anneal=0.8,rise=0.1`; with its own number of epochs if None."""
    if epochs is not None and not 0 < epochs < math.inf:
        raise UserError(f"{epochs} epochs cannot be trained; give a number above zero")
    name, _, options = text.partition(":")
    if name not in RECIPES:
        raise UserError(f"there is no recipe {name!r}; use {' or '.join(RECIPES)}")
    if name == "fast":
        base = fast() if epochs is None else fast(epochs)
    else:
        base = paper(epochs if epochs is not None else (300 if task == "classification" else 200), task)
    return replace(base, name=text, **keyword_arguments(Recipe, options, f"the recipe {name}", FIXED))


def learning_rate(recipe: Recipe, progress: float, rise: float) -> float:
    """θ's rate at a progress in [0, 1] of its cycle, which rises for the share `rise`; or of the whole run (steps)."""
    if recipe.schedule == "steps":
        return recipe.lr * 0.1 ** sum(progress >= milestone for milestone in recipe.milestones)
    if progress < rise:
        return recipe.lr * max(progress / rise, 0.04)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise))) + 1e-4 * recipe.lr


def phase_rate(recipe: Recipe, phase: str, progress: float) -> float:
    """θ's rate at a progress of a phase: one cycle for warm-up and search together and one for the finish.

    The paper's schedule runs over everything.
    """
    if phase == "finish":
        return learning_rate(recipe, progress, recipe.finish_rise)
    parts = (recipe.warmup_epochs, recipe.search_epochs)
    done = parts[0] * progress if phase == "warm-up" else parts[0] + parts[1] * progress
    return learning_rate(recipe, done / sum(parts), recipe.rise)
