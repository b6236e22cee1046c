"""Where the cost of the found architecture goes, part by part; for a schedule, how full its ticks are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from budgetnet.costs import AdditiveCost, Meter, Steps
from budgetnet.costs.units import show
from budgetnet.network.graph import Architecture
from budgetnet.pictures.report.charts import Chart, columns
from budgetnet.pictures.report.numbers import quantity
from budgetnet.pictures.report.series import Row

LARGEST_SHOWN = 10
"""Parts that are shown at once; the others are in a list to be opened."""


@dataclass(frozen=True)
class Part:
    """An edge, or what belongs to none."""

    name: str
    value: float
    shown: str
    share: float
    probability: str


@dataclass(frozen=True)
class Breakdown:
    """The parts of one cost, the largest first; they add up to the total."""

    cost: str
    total: str
    parts: list[Part]

    @property
    def largest(self) -> list[Part]:
        """Those that are shown at once."""
        return self.parts[:LARGEST_SHOWN]

    @property
    def others(self) -> list[Part]:
        """The smaller ones."""
        return self.parts[LARGEST_SHOWN:]


def breakdowns(
    architecture: Architecture, meters: Mapping[str, Meter], probabilities: list[float] | None
) -> Iterator[Breakdown]:
    """A table for each cost that adds up over edges."""
    for name, meter in meters.items():
        if isinstance(meter.cost, AdditiveCost):
            total = meter(architecture)
            rows = _parts(architecture, meter.cost)
            yield Breakdown(
                name, quantity(total, meter.unit), [_part(row, total, meter, probabilities) for row in rows]
            )


def schedule_charts(architecture: Architecture, meters: Mapping[str, Meter]) -> Iterator[Chart]:
    """The ticks of each schedule."""
    for name, meter in meters.items():
        if isinstance(meter.cost, Steps):
            yield _schedule(architecture, meter.cost, name)


def _parts(architecture: Architecture, cost: AdditiveCost) -> list[Row]:
    live = architecture.live()
    graph = cost.graph
    rows: list[Row] = [
        {"name": edge.name, "value": float(cost.edges[graph.index[edge.name]]), "index": graph.index[edge.name]}
        for edge in live
        if edge.bundle is None or float(cost.edges[graph.index[edge.name]])
    ]
    gates = live.gates()[None]
    for bundle in cost.bundles:
        units, kept = [edge for axis in bundle.axes for edge in axis], float(bundle.evaluate(gates))
        if kept:
            name = f"{graph.edges[units[0]].bundle}, {int(gates[0, units].sum())} of {len(units)} units"
            rows.append({"name": name, "value": kept})
    if cost.base:
        rows.append({"name": "stem and head", "value": cost.base})
    nodes = sum(float(cost.nodes[graph.nodes.index(node)]) for node in {edge.target for edge in live})
    if nodes:
        rows.append({"name": "no sum for the first input of a node", "value": nodes})
    return sorted(rows, key=lambda row: -row["value"])


def _part(row: Row, total: float, meter: Meter, probabilities: list[float] | None) -> Part:
    index = row.get("index")
    probability = "" if index is None or probabilities is None else f"{probabilities[index]:.2f}"
    share = 100 * row["value"] / total if total else 0.0
    return Part(row["name"], row["value"], show(row["value"], meter.unit), share, probability)


def _schedule(architecture: Architecture, steps: Steps, name: str) -> Chart:
    schedule = steps.work_schedules(architecture.live().gates()[None])[0]
    started = Counter(start for start, cost in zip(schedule.starts, steps.costs, strict=True) if start and cost)
    rows = [{"x": tick, "y": started[tick]} for tick in range(1, schedule.ticks + 1)]
    caption = (
        f"Units that run in each of the {schedule.ticks} ticks; the line is the {steps.machines} that may run at once."
    )
    return Chart(f"Schedule: {name}", caption, columns(rows, "tick", "units", steps.machines), wide=True)
