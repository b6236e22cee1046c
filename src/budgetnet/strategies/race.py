"""Race: candidates are trained for a while each from fresh weights, and the one that learns best is finished.

Shared weights favour what learns fast, and so does a short training that ends with small steps. At the full learning
rate it soon shows how much a network can learn: its loss on batches that it has not seen, before each step. Where a
recipe has time for it, those that do best go on for a second round before one is chosen.
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
    """The racers (rows of gates), the losses of those that have run, and the weights of the first of them.

    Everybody takes a turn; then the `finalists` that did best take another one, if there are two of them or more.
    """

    racers: list[Tensor]
    lengths: tuple[int, int] = (0, 0)
    """Steps of a turn, and of one in the second round."""
    finalists: int = 1
    losses: list[float] = field(default_factory=list)
    """Of the turns so far."""
    weights: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)
    """Of those who may still win, by their place among the racers."""
    seen: list[float] = field(default_factory=list)
    """Losses of the steps by which the racer whose turn it is will be judged."""

    @property
    def turn(self) -> int:
        """How many have run."""
        return len(self.losses)

    @property
    def steps(self) -> int:
        """Of this turn."""
        return self.lengths[self.final]

    @property
    def behind(self) -> int:
        """Steps of the turns before this one."""
        first = min(self.turn, len(self.racers))
        return first * self.lengths[0] + (self.turn - first) * self.lengths[1]

    @property
    def total(self) -> int:
        """Steps in all, if nobody gives up."""
        finalists = min(self.finalists, len(self.racers)) if self.finalists > 1 else 0
        return len(self.racers) * self.lengths[0] + finalists * self.lengths[1]

    @property
    def final(self) -> bool:
        """Whether this is the second round."""
        return self.turn >= len(self.racers)

    @property
    def had_final(self) -> bool:
        """Whether somebody has run twice."""
        return self.turn > len(self.racers)

    @property
    def place(self) -> int:
        """The place among the racers of the one whose turn it is."""
        return self._finalists()[self.turn - len(self.racers)] if self.final else self.turn

    @property
    def over(self) -> bool:
        """Whether all have run."""
        return self.final and self.turn == len(self.racers) + len(self._finalists())

    def observe(self, loss: float, progress: float) -> None:
        """The loss of a step of the racer whose turn it is, and how much of its turn is then done."""
        if progress > 1 - JUDGED:
            self.seen.append(loss)

    def finish(self, weights: Mapping[str, Tensor]) -> float:
        """The racer whose turn it was has come to these weights. Returns the loss by which it is judged."""
        loss, place = fmean(self.seen), self.place
        self.weights[place] = {name: value.detach().clone() for name, value in weights.items()}
        self._take(loss)
        return loss

    def withdraw(self) -> bool:
        """The racer whose turn it was could not be trained to the end. Returns whether there can still be a winner."""
        self.weights.pop(self.place, None)
        self._take(math.inf)
        return bool(self.weights) or not self.over

    def ranked(self) -> list[int]:
        """The places of those that have not given up, the best first: by the last turn that they took."""
        count = len(self.racers)
        finals = dict(zip(self._finalists(), self.losses[count:], strict=False))
        keys = {place: (place not in finals, finals.get(place, loss)) for place, loss in enumerate(self.losses[:count])}
        return [place for place in sorted(keys, key=keys.__getitem__) if keys[place][1] < math.inf]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**vars(self), "losses": list(self.losses), "weights": dict(self.weights), "seen": list(self.seen)}

    def _take(self, loss: float) -> None:
        """Ends a turn. Only the weights of those who may still win are kept."""
        self.losses.append(loss)
        self.seen = []
        leaders = self.ranked()[: max(self.finalists, 1)]
        self.weights = {place: weights for place, weights in self.weights.items() if place in leaders}

    def _finalists(self) -> list[int]:
        """Those of the second round, the best first."""
        first = self.losses[: len(self.racers)]
        order = [place for place in sorted(range(len(first)), key=first.__getitem__) if first[place] < math.inf]
        return order[: self.finalists] if min(self.finalists, len(order)) > 1 else []


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
