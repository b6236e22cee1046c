"""What is drawn, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from budgetnet.costs import Meter
from budgetnet.costs.units import show
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.pictures.draw.layout import Layout
from budgetnet.pictures.draw.places import layout
from budgetnet.pictures.draw.weights import Ticks, edge_costs, ticks
from budgetnet.pictures.outline import Drawable


@dataclass(frozen=True, eq=False)
class Picture:
    """What is drawn: a super network, the edges that are kept, their probabilities, and a cost for widths and ticks."""

    net: Drawable
    architecture: Architecture | None = None
    probabilities: Sequence[float] | None = None
    cost: Meter | None = None
    title: str = ""

    def __post_init__(self) -> None:
        count = len(self.net.graph.edges)
        if self.probabilities is not None and len(self.probabilities) != count:
            raise UserError(
                f"{len(self.probabilities)} probabilities were given for a super network of {count} edges; "
                "use the space that they were learned on"
            )

    @cached_property
    def layout(self) -> Layout:
        """The places of nodes and edges."""
        return layout(self.net)

    @cached_property
    def shown(self) -> Architecture:
        """The architecture that is drawn strong: the one given, or p > ½, or everything."""
        graph = self.net.graph
        if self.architecture is not None:
            return self.architecture
        if self.probabilities is None:
            return graph.full
        return Architecture(
            graph, frozenset(e.name for e, p in zip(graph.edges, self.probabilities, strict=True) if p > 0.5)
        )

    @cached_property
    def live(self) -> frozenset[str]:
        """The edges on a path from input to output."""
        return self.shown.live().kept

    @cached_property
    def costs(self) -> list[float] | None:
        """The cost of each edge, where it has one."""
        return edge_costs(self.cost) if self.cost else None

    @cached_property
    def ticks(self) -> Ticks | None:
        """The schedule, where the cost is one."""
        return ticks(self.cost, self.shown) if self.cost else None


def describe(picture: Picture) -> str:
    """One line: the space, how many edges are kept, and the cost."""
    graph = picture.net.graph
    text = f"{picture.net.name}: {len(picture.live)} of {len(graph.edges)} edges"
    if picture.cost is not None and picture.live:
        unit = picture.cost.unit
        value = show(picture.cost(picture.shown), unit)
        text += f", {value}" if value.endswith(unit) and unit else f", {value} {unit or picture.cost.name}"
    return text
