"""What people give to `search()` in Python, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from budgetnet.budgets.budget import BudgetLike, as_budgets
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork

AND = " & "
"""Between the budgets of one network, where there are several networks."""


def check_network(net: object) -> None:
    """Refuses what is not a super network with float32 weights that exist."""
    if not isinstance(net, SuperNetwork):
        raise UserError(
            f"{type(net).__name__} is not a super network; make one of a model with budgetnet.from_model(model, inputs)"
        )
    for name, parameter in net.named_parameters():
        if parameter.is_meta:
            raise UserError(f"the weights {name} are on the meta device, without values; build the network on the CPU")
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise UserError(
                f"the weights {name} are {parameter.dtype}; training keeps float32 weights: convert with net.float()"
            )


def check_arguments(budgets: Any, recipe: object, out: object, augmentation: object) -> Sequence[BudgetLike]:
    """Refuses arguments of another type with what they may be; returns the budgets as a sequence."""
    if not isinstance(budgets, str | list | tuple | Mapping):
        raise UserError(
            f'the budgets are a {type(budgets).__name__}; give texts such as "macs<=60%", or a list of them'
        )
    if recipe is not None and not isinstance(recipe, str) and not hasattr(recipe, "name"):
        raise UserError(f"the recipe is a {type(recipe).__name__}; give its name, such as 'fast', or a recipe")
    if out is not None and not isinstance(out, str | os.PathLike):
        raise UserError(f"out is a {type(out).__name__}; give the path of a folder")
    if augmentation is not None and not callable(augmentation):
        raise UserError(f"the augmentation is a {type(augmentation).__name__}; give a function of a batch of inputs")
    return as_budgets(budgets)
