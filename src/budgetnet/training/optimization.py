"""How weights are trained, as one value: optimizer, largest learning rate and its schedule, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from budgetnet.errors import UserError
from budgetnet.training.schedules import Rate, one_cycle

BOUNDED = {
    "lr": (math.nextafter(0, 1), math.inf),
    "momentum": (0.0, math.nextafter(1, 0)),
    "weight_decay": (0.0, math.inf),
    "clip": (0.0, math.inf),
}
"""The least and the most that a number may be; it must be finite."""


@dataclass(frozen=True)
class Optimization:
    """How weights are trained.

    Args:
        lr: The largest learning rate.
        optimizer: A name of `OPTIMIZERS`.
        momentum: Of SGD; Nesterov's kind unless it is zero.
        weight_decay: Of the optimizer.
        schedule: A name of `SCHEDULES`.
        clip: The largest norm of a gradient; 0 for no limit.
    """

    lr: float = 0.2
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "one-cycle"
    clip: float = 0.0

    def __post_init__(self) -> None:
        for choice, known in (("optimizer", OPTIMIZERS), ("schedule", SCHEDULES)):
            if getattr(self, choice) not in known:
                raise UserError(f"there is no {choice} {getattr(self, choice)!r}; use {', '.join(known)}")
        within(self, BOUNDED)

    def make(self, module: nn.Module) -> torch.optim.Optimizer:
        """The optimizer of a module's parameters."""
        return OPTIMIZERS[self.optimizer](module, self)

    def rate(self, rise: float) -> Rate:
        """The learning rate by progress.

        Args:
            rise: The share of the training in which a rate that rises does so.

        Returns:
            A function of the progress in [0, 1].
        """
        return lambda progress: SCHEDULES[self.schedule](self.lr, progress, rise)


def within(settings: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Refuses a number of a recipe that is not finite or out of its range; None is a choice of its own."""
    for name, (least, most) in bounds.items():
        value = getattr(settings, name)
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise UserError(f"{name}={value} is out of range for a recipe; give {_words(least, most)}")


def _words(least: float, most: float) -> str:
    """A range of finite numbers, as one says it."""
    lower = f"{least:g} or more" if least in (0, 1) else "a number above zero" if least > 0 else "a number"
    upper = "" if most == math.inf else " and 1 at most" if most == 1 else " and less than 1"
    return lower + upper


def _sgd(module: nn.Module, settings: Optimization) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        module.parameters(),
        settings.lr,
        momentum=settings.momentum,
        nesterov=settings.momentum > 0,
        weight_decay=settings.weight_decay,
        foreach=True,
    )


def _adamw(module: nn.Module, settings: Optimization) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), settings.lr, weight_decay=settings.weight_decay, foreach=True)


OPTIMIZERS: Mapping[str, Callable[[nn.Module, Optimization], torch.optim.Optimizer]] = {"sgd": _sgd, "adamw": _adamw}
"""Optimizers by name."""

SCHEDULES: Mapping[str, Callable[[float, float, float], float]] = {
    "one-cycle": one_cycle,
    "cosine": lambda peak, progress, rise: one_cycle(peak, progress, 0.0),
    "constant": lambda peak, progress, rise: peak,
}
"""Learning rates by name: of the largest rate, the progress, and the share in which a rate rises."""
