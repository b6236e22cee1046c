"""`Meter`: a cost bound to a super network, evaluated on gates, once per distinct live architecture."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from budgetnet.costs.chance import checked_quantile, draws_needed, mean_bound, quantile_bound
from budgetnet.costs.evidence import Evidence
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Graph

CACHED = 1 << 18
"""Architectures remembered before the cache starts anew: about 50 MB for the largest built-in space."""

STOCHASTIC_DRAWS = 400
"""Evaluations behind the expected value of a stochastic cost, where one number is asked for."""
QUANTILE_DRAWS = 60
"""Evaluations behind one sample of a stochastic cost's quantile, during the search."""

CAUTION = 3.0
"""How many widths of a random cost's 95 % bound an architecture is chosen below its budget."""


@runtime_checkable
class Vectorised(Protocol):
    """A cost that evaluates many architectures at once."""

    def evaluate(self, live: Tensor) -> Tensor:
        """The cost of each row of live gates (n × edges)."""
        ...


@runtime_checkable
class Measurable(Protocol):
    """A cost whose `evaluate` predicts the bound that `measure` will find; `refresh` fits the prediction again."""

    def __call__(self, architecture: Architecture) -> float:
        """The predicted value of one architecture, without the margin that a bound has."""
        ...

    def measure(self, architecture: Architecture) -> Evidence:
        """Measures the extracted network."""
        ...

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """Compares prediction and measurement on fresh samples, refits where they differ, and says by how much."""
        ...


@runtime_checkable
class KnowsSmallest(Protocol):
    """A cost that knows its cheapest connected architecture."""

    def smallest(self) -> Architecture:
        """The cheapest, as far as it can be told without measuring."""
        ...


class Meter:
    """A cost with its name and unit: any callable of an architecture (and of the batch, with a second parameter)."""

    def __init__(
        self,
        graph: Graph,
        function: Callable[..., float],
        name: str,
        unit: str = "",
        stochastic: bool = False,
        quantile: float | None = None,
    ) -> None:
        self.graph = graph
        self.function: Any = function
        self.name = name
        self.unit = unit
        self.quantile = checked_quantile(quantile, name)
        self.stochastic = stochastic or quantile is not None
        self.takes_batch = not isinstance(function, Vectorised) and _positional_parameters(function) > 1
        self.example: Any = None
        """The batch that stands for the data where a cost depends on the batch and none is given."""
        self._known: dict[bytes, float] = {}

    def __repr__(self) -> str:
        return f"Meter({self.name})"

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The cost of one architecture; the mean, or the quantile asked for, of repeated draws if it is stochastic."""
        if self.stochastic:
            return self.evidence(architecture, batch).value
        return float(self.evaluate(architecture.gates()[None], batch)[0])

    def evidence(self, architecture: Architecture, batch: Any = None) -> Evidence:
        """What a budget is held against: the exact value, a measurement, or the 95 % bound of a random cost.

        That is the bound of its mean, or of the quantile asked for.
        """
        if isinstance(self.function, Measurable):
            return self.function.measure(architecture)
        if not self.stochastic:
            value = self(architecture, batch)
            return Evidence(value, value, {"method": "exact"})
        return self._random_evidence(architecture, [batch] * self._draw_count())

    def evidence_on(self, architecture: Architecture, batches: Sequence[Any]) -> Evidence:
        """The evidence, over these batches where the cost depends on them."""
        if self.takes_batch and batches:
            return self.evidence_over(architecture, batches)
        return self.evidence(architecture)

    def evidence_over(self, architecture: Architecture, batches: Sequence[Any]) -> Evidence:
        """The same for a cost that depends on the batch, over batches that stand for the data."""
        repeats = -(-self._draw_count() // len(batches)) if self.stochastic else 1
        return self._random_evidence(architecture, [*batches] * repeats)

    def _random_evidence(self, architecture: Architecture, batches: Sequence[Any]) -> Evidence:
        live = architecture.live()
        draws = [self._measure(live, batch) for batch in batches]
        what = "mean" if self.quantile is None else f"{self.quantile:g} quantile"
        value, bound = mean_bound(draws) if self.quantile is None else quantile_bound(draws, self.quantile)
        how = {"method": f"{what} of draws", "samples": len(draws)}
        return Evidence(value, bound, how, cautious=value + CAUTION * (bound - value))

    def _draw_count(self) -> int:
        return max(STOCHASTIC_DRAWS, draws_needed(self.quantile) if self.quantile else 0)

    @property
    def full(self) -> float:
        """The cost of the full super network: what an inconsistent sample is charged, and what shares refer to."""
        return float(self.function(self.graph.full)) if isinstance(self.function, Measurable) else self._constant_full

    @cached_property
    def _constant_full(self) -> float:
        return self(self.graph.full)

    def evaluate(self, gates: Tensor, batch: Any = None) -> Tensor:
        """The cost of each row of gates (n × edges), float64; a row that does not connect is charged the full cost."""
        live = self.graph.live(gates)
        connected = live.any(1)
        costs = torch.empty(len(live), dtype=torch.float64)
        costs[connected] = self._of_live(live[connected], batch)
        if not connected.all():
            costs[~connected] = self(self.graph.full, batch) if self.takes_batch else self.full
        return costs

    def _of_live(self, live: Tensor, batch: Any) -> Tensor:
        if self.stochastic or self.takes_batch:
            values = [self._draw(self.graph.architecture(row), batch) for row in live]
            return torch.tensor(values, dtype=torch.float64)
        if isinstance(self.function, Measurable):
            # a prediction changes with every refresh: nothing to remember
            return torch.tensor(self._compute(live), dtype=torch.float64)
        keys = [row.tobytes() for row in np.packbits(live.numpy(), axis=1)]
        if len(self._known) > CACHED:
            self._known.clear()
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            self._known.update(zip(new, self._compute(live[list(new.values())]), strict=True))
        return torch.tensor([self._known[key] for key in keys], dtype=torch.float64)

    def _draw(self, architecture: Architecture, batch: Any) -> float:
        """One draw; where a quantile is asked for, that of a few draws, since a single one is about the mean."""
        if self.quantile is None:
            return self._measure(architecture, batch)
        draws = sorted(self._measure(architecture, batch) for _ in range(QUANTILE_DRAWS))
        return draws[math.ceil(self.quantile * QUANTILE_DRAWS) - 1]

    def _compute(self, live: Tensor) -> list[float]:
        if isinstance(self.function, Vectorised):
            return [float(value) for value in self.function.evaluate(live)]
        return [self._measure(self.graph.architecture(row), None) for row in live]

    def _measure(self, architecture: Architecture, batch: Any) -> float:
        batch = self.example if batch is None else batch
        try:
            value = float(self.function(architecture, batch) if self.takes_batch else self.function(architecture))
        except UserError:
            raise
        except Exception as error:  # a user's cost may raise anything
            raise UserError(
                f"the cost {self.name} raised {type(error).__name__}: {error}, for an architecture of "
                f"{len(architecture)} edges; correct the function"
            ) from error
        if not math.isfinite(value) or value < 0:
            raise UserError(
                f"the cost {self.name} is {value} for an architecture of {len(architecture)} edges; "
                "a cost must be a finite number that is not negative"
            )
        return value


def _positional_parameters(function: Callable[..., float]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
