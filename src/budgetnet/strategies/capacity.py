"""How much an architecture may learn, guessed without training: what it computes and what it can remember.

Among networks that use up a budget on multiply-adds, those with the fewest parameters learn least, which shared weights
do not see; the largest are not the best (`docs/experiments.md`). Other budgets have not been looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from budgetnet.costs import macs, params
from budgetnet.network.supernet import SuperNetwork

Capacity = Callable[[Tensor], Tensor]
"""Of rows of live gates; the larger the better."""


def capacity_of(net: SuperNetwork) -> Capacity:
    """The logarithm of multiply-adds times parameters."""
    factors = macs(net), params(net)

    def capacity(live: Tensor) -> Tensor:
        computed, remembered = (factor.evaluate(live).clamp_min(1).log() for factor in factors)
        return computed + remembered

    return capacity
