"""What a cost says about single edges: their width on the page, and the tick in which a schedule starts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from budgetnet.costs import AdditiveCost, Meter, Steps
from budgetnet.costs.counts import BundleCost
from budgetnet.network.graph import Architecture


@dataclass(frozen=True)
class Ticks:
    """The tick (from 1; 0 is never) in which each edge and each node starts, and how many there are."""

    edges: tuple[int, ...]
    nodes: tuple[int, ...]
    total: int


def edge_costs(meter: Meter) -> list[float] | None:
    """What each edge adds to the cost of a network that has the edge's two nodes.

    Args:
        meter: The cost.

    Returns:
        A cost for each edge: of a unit of a bundle what the full bundle costs more with it than without it, and of a
        schedule the work of the whole bundle, which is one unit of work. None if the cost cannot be parted.
    """
    cost = meter.cost
    if isinstance(cost, AdditiveCost):
        values = [float(value) for value in cost.edges]
        for bundle in cost.bundles:
            for unit, value in _marginal(bundle):
                values[unit] += value
        return values
    if isinstance(cost, Steps):
        work = [0.0] * len(meter.graph.edges)
        for operation, value in zip(meter.graph.operations, cost.costs, strict=False):
            for edge in operation.edges:
                work[edge] = float(value)
        return work
    return None


def _marginal(bundle: BundleCost) -> Iterator[tuple[int, float]]:
    """What each unit adds to the full bundle."""
    full: list[tuple[bool, ...]] = [(True,) * len(axis) for axis in bundle.axes]
    for place, axis in enumerate(bundle.axes):
        for i, unit in enumerate(axis):
            without = [*full]
            without[place] = tuple(j != i for j in range(len(axis)))
            yield unit, bundle.count(tuple(full)) - bundle.count(tuple(without))


def ticks(meter: Meter, architecture: Architecture) -> Ticks | None:
    """When a `steps` cost starts each part of an architecture; None for other costs, or if nothing connects."""
    if not isinstance(meter.cost, Steps) or not architecture.connected:
        return None
    schedule = meter.cost.schedules(architecture.live().gates()[None])[0]
    edges = len(meter.graph.edges)
    return Ticks(schedule.starts[:edges], schedule.starts[edges : edges + len(meter.graph.nodes)], schedule.ticks)
