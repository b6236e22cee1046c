"""A super network as far as it is drawn and counted: data in the folder of a run, without the code that made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

import torch

from budgetnet.budgets.budget import Budget
from budgetnet.costs import AdditiveCost, Cost, Meter, Steps
from budgetnet.costs.counts import BundleCost
from budgetnet.costs.steps import of_units
from budgetnet.errors import UserError
from budgetnet.naming.values import Range, plain, typed
from budgetnet.network.axes import Axis, Count, Polynomial
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.inputs import InputSpec
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.results import InputType

FILE = "graph.json"
MOST_EDGES, MOST_CROSSED = 2**13, 2**17
"""Of a graph that is read from a file: its edges, and the layers that they pass, which a picture has places for."""

MOST_CHANNELS = 2**31

Side = Annotated[int, Range(0, 2**31)]
Amount = Annotated[float, Range(-1e300, 1e300)]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NodeShapes:
    """The shape of the value at each node, without the batch."""

    nodes: Shapes


@dataclass(frozen=True)
class Limits:
    """A budget as it was understood before any training."""

    cost: str
    unit: str
    maximum: Amount


@dataclass(frozen=True)
class Input:
    """An input of the network: its name, the shape of one example, and its type."""

    name: str
    shape: tuple[Side, ...]
    dtype: InputType


@dataclass(frozen=True)
class _Term:
    factor: Amount
    counts: tuple[Count, ...]


@dataclass(frozen=True)
class _Bundle:
    axes: tuple[tuple[Side, ...], ...]
    widths: tuple[Axis, ...]
    terms: tuple[_Term, ...]
    once: Amount


@dataclass(frozen=True)
class _Additive:
    unit: str
    base: Amount
    edges: tuple[Amount, ...]
    nodes: tuple[Amount, ...]
    bundles: tuple[_Bundle, ...] = ()


@dataclass(frozen=True)
class _Scheduled:
    machines: Annotated[int, Range(1, 2**31)]
    allocation: Literal["critical-path", "dfs"]
    units: tuple[Annotated[int, Range(0, 1)], ...]


@dataclass(frozen=True)
class _Stored:
    """What `graph.json` holds."""

    name: str
    edges: tuple[Edge, ...]
    chains: tuple[tuple[str, ...], ...]
    shapes: tuple[tuple[Side, ...], ...]
    limits: tuple[Limits, ...] = ()
    inputs: tuple[Input, ...] = ()
    additive: Mapping[str, _Additive] = field(default_factory=dict)
    scheduled: Mapping[str, _Scheduled] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Outline:
    """What a page needs to know of a super network.

    Args:
        name: The space.
        graph: The graph.
        shapes: The shapes of its nodes.
        meters: Costs that can be counted, by their names.
        limits: The budgets of the run, with shares as amounts.
        inputs: What the network takes, if that is more than one tensor.
    """

    name: str
    graph: Graph
    shapes: NodeShapes
    meters: Mapping[str, Meter] = field(default_factory=dict)
    limits: tuple[Limits, ...] = ()
    inputs: tuple[Input, ...] = ()

    @staticmethod
    def of(net: SuperNetwork, meters: Iterable[Meter], budgets: Sequence[Budget] = ()) -> Outline:
        """The outline of a super network.

        Args:
            net: The super network.
            meters: Its costs; those that are not counted on the graph are left out.
            budgets: The budgets of the run.

        Returns:
            The outline.
        """
        counted = {meter.name: meter for meter in meters if isinstance(meter.cost, AdditiveCost | Steps)}
        limits = tuple(Limits(budget.name, budget.meter.unit, budget.maximum) for budget in budgets)
        return Outline(net.name, net.graph, NodeShapes(net.shapes.nodes), counted, limits, _inputs(net.inputs))

    def to_json(self) -> dict[str, Any]:
        """A plain value for `graph.json`."""
        costs = {name: meter.cost for name, meter in self.meters.items()}
        additive = {name: _additive(cost) for name, cost in costs.items() if isinstance(cost, AdditiveCost)}
        scheduled = {
            name: _Scheduled(cost.machines, cost.allocation, cost.costs)  # type: ignore[arg-type]
            for name, cost in costs.items()
            if isinstance(cost, Steps)
        }
        stored = _Stored(
            self.name,
            self.graph.edges,
            self.graph.chains,
            self.shapes.nodes,
            self.limits,
            self.inputs,
            additive,
            scheduled,
        )
        value: dict[str, Any] = plain(stored)
        return value

    @staticmethod
    def from_json(value: Any, where: str) -> Outline:
        """The outline in a plain value, checked; `where` begins the message about what is wrong."""
        stored = typed(value, _Stored, where)
        if len(stored.edges) > MOST_EDGES:
            raise UserError(
                f"{where}: a graph of {len(stored.edges)} edges is too large to be drawn; draw a part of it"
            )
        graph = Graph(stored.edges, stored.chains)
        if _crossed(graph) > MOST_CROSSED:
            raise UserError(
                f"{where}: the edges pass {_crossed(graph)} layers, too many to be drawn; draw a part of it"
            )
        if len(stored.shapes) != len(graph.nodes):
            raise UserError(f"{where}: there are {len(stored.shapes)} shapes of {len(graph.nodes)} nodes; restore it")
        costs: dict[str, Cost] = {name: _summed(graph, one, where) for name, one in stored.additive.items()}
        for name, one in stored.scheduled.items():
            costs[name] = of_units(graph, one.machines, one.allocation, one.units)
            costs[name].unit = "steps"
        for name, cost in costs.items():
            cost.name = name
        meters = {name: Meter(cost) for name, cost in costs.items()}
        return Outline(stored.name, graph, NodeShapes(stored.shapes), meters, stored.limits, stored.inputs)

    @cached_property
    def widths(self) -> Mapping[str, Axis]:
        """The hidden channels or heads of each bundle, by its name, where a cost knows them."""
        additive = (meter.cost for meter in self.meters.values() if isinstance(meter.cost, AdditiveCost))
        return {axis.name: axis for cost in additive for bundle in cost.bundles for axis in bundle.count.axes}


Drawable = SuperNetwork | Outline
"""What can be drawn: a super network, or what the folder of a run says of one."""


def _crossed(graph: Graph) -> int:
    """The layers that all edges pass together."""
    depth = [0] * len(graph.nodes)
    for node, incoming in enumerate(graph.incoming):
        depth[node] = max((depth[graph.sources[edge]] + 1 for edge in incoming), default=0)
    return sum(depth[target] - depth[source] for source, target in zip(graph.sources, graph.targets, strict=True))


def _inputs(spec: InputSpec) -> tuple[Input, ...]:
    if len(spec.names) < 2:
        return ()
    types = [str(dtype).removeprefix("torch.") for dtype in spec.dtypes]
    return tuple(Input(*one) for one in zip(spec.names, spec.shapes, types, strict=True))  # type: ignore[arg-type]


def _additive(cost: AdditiveCost) -> _Additive:
    bundles = tuple(
        _Bundle(
            bundle.axes,
            bundle.count.axes,
            tuple(_Term(float(factor), counts) for factor, counts in bundle.count.terms),
            float(bundle.once),
        )
        for bundle in cost.bundles
    )
    edges, nodes = (tuple(map(float, values.tolist())) for values in (cost.edges, cost.nodes))
    return _Additive(cost.unit, float(cost.base), edges, nodes, bundles)


def _summed(graph: Graph, stored: _Additive, where: str) -> AdditiveCost:
    if (len(stored.edges), len(stored.nodes)) != (len(graph.edges), len(graph.nodes)):
        raise UserError(f"{where}: a cost does not have a number for each edge and node; restore the file")
    bundles = tuple(_bundle(graph, bundle, where) for bundle in stored.bundles)
    edges, nodes = (torch.tensor(values, dtype=torch.float64) for values in (stored.edges, stored.nodes))
    cost = AdditiveCost(graph, stored.base, edges, nodes, bundles=bundles)
    cost.unit = stored.unit
    return cost


def _bundle(graph: Graph, stored: _Bundle, where: str) -> BundleCost:
    """A bundle whose numbers fit the graph: its units are edges, and its counts are of its own axes."""
    axes = len(stored.axes)
    fits = (
        axes == len(stored.widths) > 0
        and all(edge < len(graph.edges) for units in stored.axes for edge in units)
        and all(len(units) == axis.units > 0 for units, axis in zip(stored.axes, stored.widths, strict=False))
        and all(0 <= axis < axes for term in stored.terms for count in term.counts for axis, _ in count.per_block)
        and all(0 <= bound <= MOST_CHANNELS for axis in stored.widths for bound in axis.bounds)
        and all(
            abs(value) <= MOST_CHANNELS
            for term in stored.terms
            for count in term.counts
            for value in (count.base, *(channels for _, channels in count.per_block))
        )
    )
    if not fits:
        raise UserError(f"{where}: the widths of a bundle do not fit its units; restore the file")
    terms = tuple((term.factor, term.counts) for term in stored.terms)
    return BundleCost(stored.axes, Polynomial(stored.widths, terms), stored.once)
