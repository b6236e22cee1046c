"""`Evidence`: what a cost was found to be, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Evidence:
    """A value and the bound that a budget is held against: equal for exact costs, a 95 % bound for measured ones."""

    value: float
    upper_bound: float
    how: Mapping[str, Any] = field(default_factory=dict)
    cautious: float = math.nan
    """What to choose by, with room for worse evidence the next time; the upper bound if nothing else is given."""
    repeatable: bool = True
    """False if a cost that should be exact gave another value for the same architecture before."""

    def __post_init__(self) -> None:
        if math.isnan(self.cautious):
            object.__setattr__(self, "cautious", self.upper_bound)

    def within(self, maximum: float) -> bool:
        """Whether a budget holds; a bound that is not a number, or a value that was not repeatable, holds nothing."""
        return self.repeatable and self.upper_bound <= maximum
