"""Strategies by the name that a user writes."""

from __future__ import annotations

import math
import typing

from budgetnet.errors import UserError
from budgetnet.naming import typed_options
from budgetnet.strategies import paper as papers
from budgetnet.strategies import recipes
from budgetnet.strategies import trained as inherited
from budgetnet.strategies.recipes import Recipe, Strategy
from budgetnet.training.optimization import Optimization

NAMES = ("fast", "trained", "paper")


def choose(text: str, epochs: float | None, task: str) -> Strategy:
    """A strategy by its name and options, such as `fast:racers=6,lr=0.1`.

    Args:
        text: What the user wrote.
        epochs: Of the training; the strategy's own number if None.
        task: `classification` or `segmentation`.

    Returns:
        The strategy; a `UserError` for a name or an option that does not exist.
    """
    if epochs is not None and not 0 < epochs < math.inf:
        raise UserError(f"{epochs} epochs cannot be trained; give a number above zero")
    name, _, options = text.partition(":")
    if name not in NAMES:
        raise UserError(f"there is no recipe {name!r}; use {', '.join(NAMES[:-1])} or {NAMES[-1]}")
    base: Strategy
    kind: type[Recipe] | type[papers.PaperRecipe]
    if name == "fast":
        base, kind, options_of = (recipes.fast() if epochs is None else recipes.fast(epochs)), Recipe, recipes.OPTIONS
    elif name == "trained":
        base, kind = inherited.trained() if epochs is None else inherited.trained(epochs), inherited.TrainedRecipe
        options_of = inherited.OPTIONS
    else:
        base, kind, options_of = papers.paper(epochs, task), papers.PaperRecipe, papers.OPTIONS
    kinds = typing.get_type_hints(Optimization) | typing.get_type_hints(kind)
    options_given = typed_options(options, {name: kinds[name] for name in options_of}, f"the recipe {name}")
    return base.changed({"name": text, **options_given})
