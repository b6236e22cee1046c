"""Learning-rate schedules: pure functions of the progress of a training, from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Rate = Callable[[float], float]
"""The learning rate at a progress in [0, 1]."""

LOWEST_START = 0.04
"""The share of the peak that a rising rate starts at: at zero the first step would do nothing."""
LAST = 1e-4
"""The share of the peak that is left at the end of a cycle, so that the last step still does something."""
DECAY = 0.1
"""What a step schedule multiplies the rate by at each milestone, as in the paper."""


def one_cycle(peak: float, progress: float, rise: float) -> float:
    """Rises linearly for the share `rise` of the training, then falls to almost nothing along a cosine.

    Args:
        peak: The largest rate.
        progress: The share of the training that is done.
        rise: The share of the training in which the rate rises.

    Returns:
        The learning rate.
    """
    if progress < rise:
        return peak * max(progress / rise, LOWEST_START)
    return peak * 0.5 * (1 + math.cos(math.pi * (progress - rise) / (1 - rise))) + LAST * peak


def rise_and_hold(peak: float, progress: float, rise: float) -> float:
    """Rises like `one_cycle` and stays at the top: for candidates that are compared while they learn fastest."""
    return one_cycle(peak, min(progress, rise), rise)


def step_decay(peak: float, progress: float, milestones: Sequence[float]) -> float:
    """The rate divided by ten at each milestone that has been passed (the paper's schedule)."""
    return peak * DECAY ** sum(progress >= milestone for milestone in milestones)


def part_of(rate: Rate, before: float, length: float, total: float) -> Rate:
    """A schedule for one part of a longer training.

    Args:
        rate: The schedule of the whole training.
        before: What comes before the part, in epochs.
        length: The epochs of the part.
        total: All epochs.

    Returns:
        The schedule as a function of the part's own progress.
    """
    return lambda progress: rate((before + length * progress) / (total or 1.0))
