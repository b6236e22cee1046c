"""`Cost`: what an architecture costs. A plain function of an architecture is wrapped as a `FunctionCost`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from budgetnet.costs.chance import checked_quantile, draws_needed, mean_bound, quantile_bound
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.errors import UserError, user_code
from budgetnet.network.graph import Architecture, Graph

STOCHASTIC_DRAWS = 400
"""Evaluations behind the mean of a stochastic cost: its standard error is a twentieth of one draw's spread."""

CAUTION = 3.0
"""How many widths of its 95 % bound a stochastic cost is chosen below its budget, since the next bound will differ."""


class Cost:
    """What an architecture costs, with a default for everything that a cost does not know.

    A subclass overrides `__call__` or `evaluate`, and whatever else it can do better than the defaults. The defaults
    are those of an exact cost: the same number whenever the same architecture is asked about.

    Attributes:
        graph: The graph of the super network whose architectures are asked about.
        name: The text that records and certificates call the cost by; `bind` sets it.
        unit: The base unit, such as `"B"` or `"s"`; empty for plain numbers.
        stochastic: Whether two evaluations of one architecture may differ by chance.
        takes_batch: Whether `__call__` needs a batch of data.
        quantile: The quantile of a stochastic cost that a budget limits; None is the mean.
        measured: Whether `evaluate` is an estimate that `refresh` may change, and `evidence` measures.
    """

    graph: Graph
    name: str = ""
    unit: str = ""
    stochastic: bool = False
    takes_batch: bool = False
    quantile: float | None = None
    measured: bool = False

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__call__ is Cost.__call__ and cls.evaluate is Cost.evaluate:
            raise TypeError(f"{cls.__name__} is a Cost that says nothing; define __call__ or evaluate")

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The cost of one architecture.

        Args:
            architecture: A connected architecture; edges that are not live cost nothing.
            batch: Inputs, for a cost that depends on them.

        Returns:
            The cost in its base unit; of a measured cost the estimate, without the margin that `evaluate` adds.
        """
        return float(self.evaluate(architecture.live().gates()[None])[0])

    def evaluate(self, live: Tensor) -> Tensor:
        """The costs of many architectures at once.

        Args:
            live: Rows of live gates (n × edges), each connected.

        Returns:
            A cost per row, float64; of a measured cost the bound that `evidence` is expected to find.
        """
        return torch.tensor([self(self.graph.architecture(row)) for row in live], dtype=torch.float64)

    @property
    def exact(self) -> bool:
        """Whether an architecture has one value, which may be remembered."""
        return not (self.stochastic or self.takes_batch or self.measured)

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """What a budget is held against: the exact value, or the 95 % bound over repeated draws or over batches.

        Args:
            architecture: The architecture.
            batches: Batches that stand for the data, for a cost that depends on them.

        Returns:
            The value and its bound: of the mean, or of the quantile that the cost asks for.
        """
        live = architecture.live()
        if self.exact:
            value = self(live)
            return Evidence(value, value, {"method": "exact"})
        inputs = [(live, batch) for batch in batches] if self.takes_batch else [(live,)]
        repeats = -(-self._draw_count() // len(inputs)) if self.stochastic else 1
        draws = [self(*given) for given in inputs * repeats]
        what = "mean" if self.quantile is None else f"{self.quantile:g} quantile"
        value, bound = mean_bound(draws) if self.quantile is None else quantile_bound(draws, self.quantile)
        how = {"method": f"{what} of draws", "samples": len(draws)}
        return Evidence(value, bound, how, cautious=value + CAUTION * (bound - value))

    def _draw_count(self) -> int:
        return max(STOCHASTIC_DRAWS, draws_needed(self.quantile) if self.quantile else 0)

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """Evidence for a certificate, on what is handed over, however often the architecture was asked about before.

        Args:
            deliverable: The network that is handed over, and the file that is made of it.
            maximum: The budget; a measurement may go on for longer where it seems not to hold.

        Returns:
            By default the evidence for the architecture, or the recount on the network where that is larger.
        """
        evidence = self.evidence(deliverable.architecture, deliverable.batches)
        counted = self.recount(deliverable.network)
        if counted is None:
            return evidence
        value = max(counted, evidence.value)
        return Evidence(value, value, {**evidence.how, "method": "exact, counted on the network"})

    def recount(self, network: fx.GraphModule) -> float | None:
        """The same cost, counted on an extracted network without a look at the super network; None if unknown."""
        return None

    def other_form(self, deliverable: Deliverable) -> Mapping[str, float]:
        """The cost of the form (`extracted` or `exported`) that the verdict of a certificate is not about."""
        return {}

    def smallest(self) -> Architecture | None:
        """The cheapest connected architecture (by the estimate, if the cost is measured); None if unknown."""
        return None

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """Compares estimate and measurement on some of these rows of live gates, and fits the estimate again.

        Args:
            live: Rows of live gates; rows that do not connect are left out.

        Returns:
            How far off the estimate was, for the records; nothing if there is no estimate.
        """
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What the cost has learnt, as plain JSON values, for a checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""


class FunctionCost(Cost):
    """A plain function of an architecture, or of an architecture and a batch, whatever else the function can do.

    Args:
        graph: The graph of the super network.
        function: Called with a live architecture, and with a batch if it has a second positional parameter without a
            default. Nothing else of it is used, whatever methods it has.
        name: What messages and records call it.
        unit: Its base unit.
        stochastic: Whether it is random.
        quantile: The quantile that a budget limits; a cost with a quantile is stochastic.
    """

    def __init__(
        self,
        graph: Graph,
        function: Callable[..., float],
        name: str,
        unit: str = "",
        stochastic: bool = False,
        quantile: float | None = None,
    ) -> None:
        super().__init__(graph)
        self.function = function
        self.name = name
        self.unit = unit
        self.quantile = checked_quantile(quantile, name)
        self.stochastic = stochastic or quantile is not None
        self.takes_batch = _positional_parameters(function) > 1

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The function's value, which must be a finite number that is not negative."""
        edges = f"an architecture of {len(architecture)} edges"
        with user_code(f"the cost {self.name}", f", for {edges}; correct the function"):
            value = float(self.function(architecture, batch) if self.takes_batch else self.function(architecture))
        check_value(value, self.name, f" for {edges}")
        return value


def least_path(graph: Graph, weights: Sequence[float]) -> Architecture | None:
    """The cheapest connected architecture, for a cost that grows with every edge that is kept.

    Args:
        graph: The graph.
        weights: What each edge adds to a network that is a single path.

    Returns:
        The path of least weight; where some edges are fixed, the network of these alone if it connects. None if
        neither is certain: in a bundle, what a unit adds depends on the other units.
    """
    if not bool(graph.fixed.any()) and not graph.bundles:
        return Architecture(graph, frozenset(graph.edges[edge].name for edge in graph.shortest_path(weights)))
    fixed = graph.architecture(graph.fixed)
    return fixed if fixed.connected else None


def check_value(value: float, name: str, where: str = "") -> None:
    """Refuses a value that is no cost."""
    if not math.isfinite(value) or value < 0:
        raise UserError(f"the cost {name} is {value}{where}; a cost must be a finite number that is not negative")


def _positional_parameters(function: Callable[..., float]) -> int:
    """Positional parameters without a default; one if the function does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is inspect.Parameter.empty for p in parameters)
