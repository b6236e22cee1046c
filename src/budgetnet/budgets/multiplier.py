"""`Multiplier`: the weight λ of a budget's penalty, which follows the observed violation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Multiplier:
    """λ ≥ 0 driven by the observed violation: the νPI controller (Sohrabi et al., ICML 2024) in recursive form.

    λ ← max(0, λ + κ_i·e + κ_p·(ξ − ξ_before)), where ξ is an exponential average of the violation e.

    Attributes:
        value: λ.
        integral: κ_i, what one unit of violation adds to λ in a step. 0.05 brings λ from 0 to 1 in twenty steps at
            twice the budget.
        proportional: κ_p, how strongly λ answers to a change of the violation; 1 answers in the unit of the violation.
        smoothing: The weight of the past in ξ; 0.9 averages over some ten steps, as many as a few hundred samples.
        average: ξ; None before the first observation.
    """

    value: float
    integral: float = 0.05
    proportional: float = 1.0
    smoothing: float = 0.9
    average: float | None = None

    def update(self, violation: float) -> None:
        """Moves λ by one observation.

        Args:
            violation: C / C_max − 1, clipped to [−1, 1] so that one extreme sample cannot dominate λ.
        """
        error = max(-1.0, min(1.0, violation))
        before = error if self.average is None else self.average
        self.average = self.smoothing * before + (1 - self.smoothing) * error
        self.value = max(0.0, self.value + self.integral * error + self.proportional * (self.average - before))
