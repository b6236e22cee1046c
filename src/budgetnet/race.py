"""Race: the best candidates of settle are trained for a while each, and the one that then does best is finished.

Shared weights tell good architectures from bad ones, but hardly the good ones from each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

APART = 0.3
"""The least distance between racers, as a share of what either of two computes."""


@dataclass
class Race:
    """The racers (rows of gates), the losses of those that have run, and the weights of the best of them."""

    racers: list[Tensor]
    losses: list[float] = field(default_factory=list)
    best: Mapping[str, Tensor] | None = None

    @property
    def place(self) -> int:
        """The racer whose turn it is."""
        return len(self.losses)

    @property
    def over(self) -> bool:
        """Whether all have run."""
        return self.place == len(self.racers)

    def finish(self, loss: float, weights: Mapping[str, Tensor]) -> None:
        """The racer whose turn it was has come to this loss with these weights."""
        if not self.losses or loss < min(self.losses):
            self.best = {name: value.detach().clone() for name, value in weights.items()}
        self.losses.append(loss)

    def ranked(self) -> list[Tensor]:
        """Those that have run, the best first."""
        order = sorted(range(self.place), key=self.losses.__getitem__)
        return [self.racers[place] for place in order]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        best = None if self.best is None else dict(self.best)
        return {"racers": list(self.racers), "losses": list(self.losses), "best": best}


def distance(a: Tensor, b: Tensor, weights: Tensor) -> float:
    """Which share of the weight of the edges that either of two architectures keeps only one of them has."""
    return float((weights * (a ^ b)).sum() / (weights * (a | b)).sum().clamp_min(1e-12))


def field_of(ranked: Sequence[Tensor], weights: Tensor, count: int) -> list[Tensor]:
    """The best candidates (live gates) that are well apart, then the best of the others, until there are so many."""
    chosen: list[int] = []
    for least in (APART, 0.0):
        for place, gates in enumerate(ranked):
            apart = all(distance(gates, ranked[other], weights) >= least for other in chosen)
            if apart and len(chosen) < count and place not in chosen:
                chosen.append(place)
    return [ranked[place] for place in sorted(chosen)]
