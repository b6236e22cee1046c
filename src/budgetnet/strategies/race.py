"""The race: successive halving of candidates that are trained from fresh weights.

Shared weights favour networks that learn fast, and so does a short training that ends with small steps. At the full
learning rate the loss on batches that a network has not seen, before each step, soon shows how much it can learn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

APART = 0.3
"""The least distance between racers, as a share of what either of two computes: closer ones end alike."""
RISE = 0.25
"""The share of a racer's first training in which its learning rate rises, as it does from fresh weights."""
JUDGED = 0.25
"""The last share of a racer's training, over which its mean loss is taken."""

Rung = tuple[int, int]
"""Steps that each contestant is trained for, and how many survivors go on to the next rung."""


UNJUDGED = 1e300
"""The loss of a contestant whose turn a time limit left without a step: worse than any other, but it may still win."""


@dataclass
class Race:
    """Successive halving: each rung trains its contestants in turn, and its best ones are those of the next rung.

    A rung with a single contestant is left out, and so is everything after it.

    Args:
        racers: The candidates, as rows of gates.
        rungs: The rungs, the first one for all racers.
        losses: The loss of each turn so far, rung by rung, in the order in which the contestants were trained.
        weights: Of those who may still win, by their index among the racers.
        seen: Losses of the steps by which the contestant in training will be judged.
        origins: Who proposed each racer; empty if that is not known.
    """

    racers: list[Tensor]
    rungs: tuple[Rung, ...] = ((0, 1),)
    losses: list[list[float]] = field(default_factory=list)
    weights: dict[int, Mapping[str, Tensor]] = field(default_factory=dict)
    seen: list[float] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)

    @property
    def rung(self) -> int:
        """The index of the rung that is being trained; the number of rungs if the race is over."""
        for rung in range(len(self.rungs)):
            contestants = self.contestants(rung)
            if not contestants:
                break
            if len(self._turns(rung)) < len(contestants):
                return rung
        return len(self.rungs)

    @property
    def over(self) -> bool:
        """Whether every rung has been trained."""
        return self.rung == len(self.rungs)

    @property
    def place(self) -> int:
        """The index among the racers of the contestant whose turn it is."""
        rung = self.rung
        return self.contestants(rung)[len(self._turns(rung))]

    @property
    def steps(self) -> int:
        """Steps of this turn."""
        return self.rungs[self.rung][0]

    @property
    def behind(self) -> int:
        """Steps of all turns before this one."""
        return sum(len(self._turns(rung)) * steps for rung, (steps, _) in enumerate(self.rungs))

    @property
    def trained(self) -> int:
        """Steps that the contestant whose turn it is was trained for in earlier rungs."""
        return sum(steps for steps, _ in self.rungs[: self.rung])

    @property
    def total(self) -> int:
        """Steps of the whole race if no racer diverges."""
        counts = [len(self.racers)]
        for _, survivors in self.rungs[:-1]:
            following = min(survivors, counts[-1])
            counts.append(following if following > 1 else 0)
        return sum(count * steps for count, (steps, _) in zip(counts, self.rungs, strict=True))

    def contestants(self, rung: int) -> list[int]:
        """The racers of a rung, in the order of their turns; none if the rung before left fewer than two."""
        if rung == 0:
            return list(range(len(self.racers)))
        before = self.contestants(rung - 1)
        if len(self._turns(rung - 1)) < len(before):
            return []
        survivors = self._finishers(rung - 1)[: self.rungs[rung - 1][1]]
        return survivors if len(survivors) > 1 else []

    @property
    def left(self) -> int:
        """Turns of this rung that are still to come."""
        rung = self.rung
        return len(self.contestants(rung)) - len(self._turns(rung))

    def ahead(self, turns: int) -> Race:
        """The race as it will be after so many further turns of this rung, for a contestant that need not wait."""
        rung, losses = self.rung, [list(seen) for seen in self.losses]
        losses += [[] for _ in range(rung + 1 - len(losses))]
        losses[rung] += [UNJUDGED] * turns
        return Race(self.racers, self.rungs, losses, self.weights, origins=self.origins)

    def observe(self, loss: float, progress: float) -> None:
        """Takes the loss of a step of the contestant whose turn it is, and how much of its turn is then done."""
        if progress > 1 - JUDGED:
            self.seen.append(loss)

    def finish(self, weights: Mapping[str, Tensor]) -> float:
        """Ends a turn with the weights that the contestant has come to; returns the loss by which it is judged."""
        loss, place = fmean(self.seen) if self.seen else UNJUDGED, self.place
        self.weights[place] = {name: value.detach().clone() for name, value in weights.items()}
        self._take(loss)
        return loss

    def withdraw(self) -> bool:
        """Ends the turn of a contestant that diverged; returns whether there can still be a winner."""
        self.weights.pop(self.place, None)
        self._take(math.inf)
        return bool(self.weights) or not self.over

    def ranked(self) -> list[int]:
        """The racers that have not diverged, the best first: by the last rung that they reached, then by its loss."""
        reached: dict[int, tuple[int, float]] = {}
        for rung in range(len(self.rungs)):
            for place, loss in zip(self.contestants(rung), self._turns(rung), strict=False):
                reached[place] = (-rung, loss)
        return [place for place in sorted(reached, key=reached.__getitem__) if reached[place][1] < math.inf]

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint: the arguments of this race."""
        return {
            "racers": list(self.racers),
            "rungs": self.rungs,
            "losses": [list(turns) for turns in self.losses],
            "weights": dict(self.weights),
            "seen": list(self.seen),
            "origins": list(self.origins),
        }

    def _turns(self, rung: int) -> list[float]:
        return self.losses[rung] if rung < len(self.losses) else []

    def _finishers(self, rung: int) -> list[int]:
        """The contestants of a rung that have had their turn and did not diverge, the best first."""
        found = zip(self._turns(rung), self.contestants(rung), strict=False)
        return [place for loss, place in sorted(found) if loss < math.inf]

    def _take(self, loss: float) -> None:
        """Ends a turn. Only the weights of those who may still win are kept."""
        rung = self.rung
        self.losses += [[] for _ in range(rung + 1 - len(self.losses))]
        self.losses[rung].append(loss)
        self.seen = []
        waiting = self.contestants(rung)[len(self._turns(rung)) :]
        kept = {*waiting, *self._finishers(rung)[: self.rungs[rung][1]]}
        self.weights = {place: weights for place, weights in self.weights.items() if place in kept}


def distance(a: Tensor, b: Tensor, weights: Tensor) -> float:
    """The share of the weight of the edges that either of two architectures keeps and only one of them has."""
    return float((weights * (a ^ b)).sum() / (weights * (a | b)).sum().clamp_min(1e-12))


def field_of(ranked: Sequence[Tensor], weights: Tensor, count: int) -> list[Tensor]:
    """The racers of a race.

    Args:
        ranked: Candidates (live gates), the best first.
        weights: Of each edge, for the distance between architectures.
        count: Racers at most.

    Returns:
        The best candidates that are well apart from each other; if there are too few of these, the best of the others
        take part too.
    """
    chosen: list[int] = []
    for least in (APART, 0.0):
        for place, gates in enumerate(ranked):
            apart = all(distance(gates, ranked[other], weights) >= least for other in chosen)
            if apart and len(chosen) < count and place not in chosen:
                chosen.append(place)
    return [ranked[place] for place in sorted(chosen)]
