"""Costs that one process measures for all: two measurements of one network differ, and decisions must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, fx

from budgetnet.budgets.budget import Budget
from budgetnet.costs.base import Cost
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.meter import Meter
from budgetnet.network.graph import Architecture
from budgetnet.training.processes import Processes

T = TypeVar("T")


class FromFirst(Cost):
    """A cost that is random or measured, as the first process finds it; all processes ask at the same time.

    Args:
        cost: The cost.
        processes: The processes of the run.
    """

    def __init__(self, cost: Cost, processes: Processes) -> None:
        super().__init__(cost.graph)
        self.cost, self.processes = cost, processes
        self.name, self.unit, self.quantile = cost.name, cost.unit, cost.quantile
        self.stochastic, self.takes_batch, self.measured = cost.stochastic, cost.takes_batch, cost.measured

    def _ask(self, function: Callable[[], T]) -> T:
        return self.processes.from_first(function)

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """See `Cost`."""
        given = (architecture, batch) if self.takes_batch else (architecture,)
        return self._ask(lambda: self.cost(*given))

    def evaluate(self, live: Tensor) -> Tensor:
        """See `Cost`."""
        return self._ask(lambda: self.cost.evaluate(live))

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """See `Cost`."""
        return self._ask(lambda: self.cost.evidence(architecture, batches))

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """See `Cost`."""
        return self._ask(lambda: dict(self.cost.refresh(live)))

    def smallest(self) -> Architecture | None:
        """See `Cost`."""
        return self._ask(self.cost.smallest)

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """See `Cost`; only the first process certifies."""
        return self.cost.certify(deliverable, maximum)

    def recount(self, network: fx.GraphModule) -> float | None:
        """See `Cost`."""
        return self.cost.recount(network)

    def state_dict(self) -> dict[str, Any]:
        """See `Cost`; only the first process saves."""
        return self.cost.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Cost`."""
        self.cost.load_state_dict(state)


class SharedMeter(Meter):
    """A meter that all processes ask at the same time; the first one's clock says whether it is late.

    Args:
        meter: The meter.
        processes: The processes of the run.
    """

    def __init__(self, meter: Meter, processes: Processes) -> None:
        exact = meter.cost.exact
        super().__init__(meter.cost if exact else FromFirst(meter.cost, processes), meter.own, meter.example)
        self.processes, self.until = processes, meter.until

    @property
    def late(self) -> bool:
        """See `Meter`."""
        return self.hurried and bool(self.processes.of_first(super().late)[0])


def measured_by_first(budgets: Sequence[Budget], processes: Processes) -> Sequence[Budget]:
    """The budgets with the first process's maxima, and with costs that it alone measures or draws."""
    if processes.alone or not budgets:
        return budgets
    maxima = processes.of_first(*(budget.maximum for budget in budgets))
    return [_shared(budget, maximum, processes) for budget, maximum in zip(budgets, maxima, strict=True)]


def _shared(budget: Budget, maximum: float, processes: Processes) -> Budget:
    return replace(budget, meter=SharedMeter(budget.meter, processes), maximum=maximum)
