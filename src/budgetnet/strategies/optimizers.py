"""Which optimizer trains the weights: by name, by a user's own function, or by what the network is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from budgetnet.errors import UserError
from budgetnet.strategies.recipes import Recipe, Strategy
from budgetnet.training.optimization import OPTIMIZERS, SCHEDULES
from budgetnet.training.trainer import OptimizerFactory

OptimizerLike = str | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""A name, or a function of parameters."""
WITHOUT_NORM = {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.01, "clip": 1.0}
"""For networks without batch norm, on which SGD at the rate of the default recipe diverges in 4 of 15 runs of
`benchmarks.default_optimizer`. Of seven settings this is the best one for the largest network there, and the second
best of all on average; twice the rate is better for the small ones and worse for that one."""
FINE_TUNING = {**WITHOUT_NORM, "lr": 2e-3}
"""The same for weights that are trained already, which a large rate would throw away."""
ADAMW = {"lr": 0.01, "weight_decay": 0.01}
"""What AdamW is used with if nothing else is said."""


def has_batch_norm(net: nn.Module) -> bool:
    """Whether activations are normalised by batch, which is what makes large learning rates work."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in net.modules())


def trained_with(
    strategy: Strategy,
    net: nn.Module,
    *,
    optimizer: OptimizerLike | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
    schedule: str | None = None,
    clip: float | None = None,
) -> tuple[Strategy, OptimizerFactory | None]:
    """A strategy with the optimizer that was asked for, or with one that suits the network.

    Args:
        strategy: How the network is searched and trained.
        net: The network.
        optimizer: `sgd`, `adamw`, or a function of parameters; None keeps SGD unless the network has no batch norm.
        lr: The largest learning rate.
        weight_decay: Of the optimizer.
        schedule: A name of `SCHEDULES`.
        clip: The largest norm of a gradient.

    Returns:
        The strategy, and what makes the optimizer of a module if that is the user's own function.
    """
    given = {"lr": lr, "weight_decay": weight_decay, "schedule": schedule, "clip": clip}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not isinstance(strategy, Recipe):
        if changes or optimizer is not None:
            raise UserError("the paper's recipe has an optimizer of its own; use recipe='fast' to choose another")
        return strategy, None
    if schedule is not None and schedule not in SCHEDULES:
        raise UserError(f"there is no schedule {schedule!r}; use {', '.join(SCHEDULES)}")
    if callable(optimizer):
        return _own(strategy, optimizer, changes)
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise UserError(
            f"there is no optimizer {optimizer!r}; use {', '.join(OPTIMIZERS)}, or a function of parameters"
        )
    untouched = optimizer is None and ":" not in strategy.name and strategy.weights.optimizer == "sgd" and lr is None
    if untouched and not has_batch_norm(net):
        changes = {**(FINE_TUNING if getattr(net, "trained", False) else WITHOUT_NORM), **changes}
    elif optimizer is not None:
        changes = {**(ADAMW if optimizer == "adamw" else {}), **changes, "optimizer": optimizer}
    return strategy.changed(changes), None


def _own(
    strategy: Recipe, factory: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer], changes: dict[str, Any]
) -> tuple[Strategy, OptimizerFactory]:
    """A user's own optimizer: its learning rate is the largest of the schedule, unless another is given."""
    try:
        probe = factory([nn.Parameter(torch.zeros(1))])
    except Exception as error:  # a user's function may raise anything
        raise UserError(f"the optimizer cannot be made ({error}); give a function of parameters") from error
    if not isinstance(probe, torch.optim.Optimizer):
        raise UserError(f"the optimizer is {type(probe).__name__}; return a torch.optim.Optimizer of the parameters")
    rate = float(probe.param_groups[0].get("lr", strategy.weights.lr))
    return strategy.changed({"lr": rate, **changes}), lambda module: factory(module.parameters())
