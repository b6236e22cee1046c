"""What a cost says about single edges: their width on the page, and the tick in which a schedule starts them."""

from __future__ import annotations

from dataclasses import dataclass

from budgetnet.costs import AdditiveCost, Meter, Steps
from budgetnet.network.graph import Architecture


@dataclass(frozen=True)
class Ticks:
    """The tick (from 1; 0 is never) in which each edge and each node starts, and how many there are."""

    edges: tuple[int, ...]
    nodes: tuple[int, ...]
    total: int


def edge_costs(meter: Meter) -> list[float] | None:
    """What each edge adds to the cost of a network that has the edge's two nodes; None if the cost cannot be parted."""
    cost = meter.cost
    if isinstance(cost, AdditiveCost):
        return [float(value) for value in cost.edges]
    if isinstance(cost, Steps):
        return [float(value) for value in cost.costs[: len(meter.graph.edges)]]
    return None


def ticks(meter: Meter, architecture: Architecture) -> Ticks | None:
    """When a `steps` cost starts each part of an architecture; None for other costs, or if nothing connects."""
    if not isinstance(meter.cost, Steps) or not architecture.connected:
        return None
    schedule = meter.cost.schedules(architecture.live().gates()[None])[0]
    edges = len(meter.graph.edges)
    return Ticks(schedule.starts[:edges], schedule.starts[edges : edges + len(meter.graph.nodes)], schedule.ticks)
