"""Which sums and activations are computed in place: one rule for the super network, extraction and peak memory.

These must agree: a sampled network, its extracted twin, and the analysis of that twin's memory, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn


class Sum(NamedTuple):
    """How the terms at a node are added up, one after the other.

    Attributes:
        order: The terms in the order in which they are added; the first receives the others.
        in_place: Whether the first addition writes into the first term. All later ones write into the sum.
        fresh: Whether the sum is a tensor that nobody else reads, so that its activation may write into it.
    """

    order: tuple[int, ...]
    in_place: bool
    fresh: bool


def add_up(own: Sequence[bool]) -> Sum:
    """The rule for the sum of some terms.

    Args:
        own: For each term, whether it is a tensor that nobody else reads and that no gradient needs.

    Returns:
        The first term receives the others, or the second one if only that may be written to.
    """
    order = list(range(len(own)))
    if len(own) > 1 and own[1] and not own[0]:
        order[:2] = 1, 0
    return Sum(tuple(order), own[order[0]], len(own) > 1 or own[0])


def writes_into_input(activation: nn.Module) -> bool:
    """Whether an activation has a form that writes into its input: ReLU, whose gradient needs only its output."""
    return type(activation) is nn.ReLU


def in_place(activation: nn.Module, fresh: bool) -> nn.Module:
    """The activation of a sum, in the form that writes into it if there is one and the sum is fresh."""
    return nn.ReLU(inplace=True) if fresh and writes_into_input(activation) else activation
