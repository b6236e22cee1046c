"""Race: candidates are trained for a while each from fresh weights, and the one that learns best is finished.

Shared weights favour what learns fast, and so does a short training that ends with small steps. At the full learning
rate it soon shows how much a network can learn: its loss on batches that it has not seen, before each step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

APART = 0.3
"""The least distance between racers, as a share of what either of two computes."""
RISE, JUDGED = 0.25, 0.25
"""Shares of a racer's training: the first, in which the learning rate rises; the last, by which the racer is judged."""


@dataclass
class Race:
    """The racers (rows of gates), the losses of those that have run, and the weights of the best of them."""

    racers: list[Tensor]
    losses: list[float] = field(default_factory=list)
    best: Mapping[str, Tensor] | None = None
    seen: list[float] = field(default_factory=list)
    """Losses of the steps by which the racer whose turn it is will be judged."""

    @property
    def place(self) -> int:
        """The racer whose turn it is."""
        return len(self.losses)

    @property
    def over(self) -> bool:
        """Whether all have run."""
        return self.place == len(self.racers)

    def observe(self, loss: float, progress: float) -> None:
        """The loss of a step of the racer whose turn it is, and how much of its training is then done."""
        if progress > 1 - JUDGED:
            self.seen.append(loss)

    def finish(self, weights: Mapping[str, Tensor]) -> float:
        """The racer whose turn it was has come to these weights. Returns the loss by which it is judged."""
        loss, self.seen = fmean(self.seen), []
        if not self.losses or loss < min(self.losses):
            self.best = {name: value.detach().clone() for name, value in weights.items()}
        self.losses.append(loss)
        return loss

    def withdraw(self) -> bool:
        """The racer whose turn it was could not be trained to the end. Returns whether there can still be a winner."""
        self.seen = []
        self.losses.append(math.inf)
        return self.best is not None or not self.over

    def ranked(self) -> list[Tensor]:
        """Those that have run to the end, the best first."""
        order = sorted(range(self.place), key=self.losses.__getitem__)
        return [self.racers[place] for place in order if self.losses[place] < math.inf]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        best = None if self.best is None else dict(self.best)
        return {"racers": list(self.racers), "losses": list(self.losses), "best": best, "seen": list(self.seen)}


def distance(a: Tensor, b: Tensor, weights: Tensor) -> float:
    """Which share of the weight of the edges that either of two architectures keeps only one of them has."""
    return float((weights * (a ^ b)).sum() / (weights * (a | b)).sum().clamp_min(1e-12))


def field_of(ranked: Sequence[Tensor], weights: Tensor, count: int, beside: Sequence[Tensor] = ()) -> list[Tensor]:
    """The racers `beside`, and the best candidates (live gates) well apart from them and each other, up to `count`.

    If there are too few of these, the best of the others take part too.
    """
    chosen: list[int] = []
    for least in (APART, 0.0):
        for place, gates in enumerate(ranked):
            field = [*beside, *(ranked[other] for other in chosen)]
            apart = all(distance(gates, other, weights) >= least for other in field)
            if apart and len(field) < count and place not in chosen:
                chosen.append(place)
    return [*beside, *(ranked[place] for place in sorted(chosen))]
