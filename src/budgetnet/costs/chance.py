"""Bounds for costs that are random: what can be said about a mean or a quantile from a number of draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

from budgetnet.errors import UserError

CONFIDENCE = 0.95
_NORMAL = 1.6448536269514722
"""The standard normal's quantile at that confidence."""


MOST_DRAWS = 10_000
"""Draws that a bound of a quantile may take: ten seconds if a draw takes a millisecond. Enough for 0.9997."""


def checked_quantile(quantile: float | None, name: str) -> float | None:
    """Refuses a quantile that is none, or that would take too many draws to bound."""
    if quantile is None:
        return None
    if not 0 < quantile < 1:
        raise UserError(f"the cost {name} asks for its quantile {quantile}; it must be between 0 and 1, such as 0.95")
    if draws_needed(quantile) > MOST_DRAWS:
        raise UserError(
            f"the cost {name} asks for its quantile {quantile}, whose bound takes {draws_needed(quantile):,} draws, "
            f"more than {MOST_DRAWS:,}; ask for a smaller one, such as 0.999"
        )
    return quantile


def mean_bound(draws: Sequence[float]) -> tuple[float, float]:
    """The mean, and the upper 95 % bound of the expectation (normal approximation)."""
    mean = math.fsum(draws) / len(draws)
    if len(draws) < 2:
        return mean, mean
    variance = math.fsum((draw - mean) ** 2 for draw in draws) / (len(draws) - 1)
    return mean, mean + _NORMAL * math.sqrt(variance / len(draws))


def quantile_bound(draws: Sequence[float], quantile: float) -> tuple[float, float]:
    """The empirical quantile, and its upper 95 % bound: the order statistic that is below it with 5 % probability.

    At least `draws_needed` draws; no assumption on the distribution.
    """
    ordered = sorted(draws)
    middle = ordered[math.ceil(quantile * len(ordered)) - 1]
    return middle, ordered[bounding_rank(len(ordered), quantile) - 1]


def draws_needed(quantile: float) -> int:
    """The fewest draws whose largest is above the quantile with 95 % probability."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


def bounding_rank(count: int, quantile: float) -> int:
    """The smallest k with P(Binomial(count, quantile) < k) ≥ 95 %: the k-th smallest draw bounds the quantile."""
    log_odds = math.log(quantile) - math.log1p(-quantile)
    log_term, below = count * math.log1p(-quantile), 0.0
    for k in range(count + 1):
        if below >= CONFIDENCE:
            return k
        below += math.exp(log_term)
        log_term += math.log((count - k) / (k + 1)) + log_odds if k < count else 0.0
    return count
