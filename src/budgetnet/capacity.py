"""How much an architecture may learn, guessed without training: what it computes and what it can remember.

Among networks that use up a budget on one of the two, those with more of the other one learn more: parameters under a
budget on multiply-adds, multiply-adds under one on parameters (`docs/search-quality.md`). Shared weights do not see it.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from budgetnet.costs import macs, params
from budgetnet.supernet import SuperNetwork

Capacity = Callable[[Tensor], Tensor]
"""Of rows of live gates; the larger the better."""


def capacity_of(net: SuperNetwork) -> Capacity:
    """The logarithm of multiply-adds times parameters."""
    factors = macs(net), params(net)

    def capacity(live: Tensor) -> Tensor:
        computed, remembered = (factor.evaluate(live).clamp_min(1).log() for factor in factors)
        return computed + remembered

    return capacity
