"""`traffic`: bytes per input that cross between the device and the cloud, for a given placement of the nodes.

A placement file names the nodes on one side, {"device": ["g0b1", …]} or {"cloud": [...]}; all others are on the other
side. Edges run where the node is that they lead to, so a node's value crosses once, however many edges need it there.
The input begins and the output ends on the device. Side inputs, such as a mask, cross once if a live edge in the cloud
reads them. The units of a bundle run as one layer, so a node within a chain of bundles cannot be placed apart from it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, fx, nn

from budgetnet.costs.base import Cost, least_path
from budgetnet.errors import UserError
from budgetnet.naming.files import read_json
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork

DEVICE, CLOUD = "device", "cloud"
"""The two sides, as a placement file names them."""
SHOWN = 12
"""Nodes that a message names before it leaves some out."""


@dataclass(eq=False)
class Traffic(Cost):
    """Bytes between the device and the cloud.

    Attributes:
        graph: The graph.
        always: Bytes that cross in every network: the input or the output of a part in the cloud.
        values: Bytes of a node's value, or of a side input, that may cross.
        crossing: For each of these, the edges that need it on the other side: it crosses if one of them is live.
    """

    graph: Graph
    always: float
    values: tuple[float, ...]
    crossing: tuple[tuple[int, ...], ...]

    def evaluate(self, live: Tensor) -> Tensor:
        """The bytes of each row of live gates (n × edges), float64."""
        total = torch.full((len(live),), self.always, dtype=torch.float64)
        for value, edges in zip(self.values, self.crossing, strict=True):
            total += value * live[:, list(edges)].any(1)
        return total

    def smallest(self) -> Architecture | None:
        """The exact minimum: more edges cross no less, so it is a path, and on a path no value crosses twice."""
        weights = [0.0] * len(self.graph.edges)
        for value, edges in zip(self.values, self.crossing, strict=True):
            for edge in edges:
                weights[edge] = value
        return least_path(self.graph, weights)


def traffic(net: SuperNetwork, placement: str) -> Traffic:
    """Bytes per input that cross between device and cloud.

    Args:
        net: The super network.
        placement: A JSON file that places the nodes.

    Returns:
        The cost.
    """
    return place(net, read_placement(Path(placement), net.graph.nodes))


def place(net: SuperNetwork, cloud: Collection[str]) -> Traffic:
    """The traffic with these nodes in the cloud and all others on the device.

    Args:
        net: The super network.
        cloud: The nodes in the cloud; the nodes within a chain are where the end of the chain is.

    Returns:
        The cost.
    """
    graph, shapes = net.graph, net.shapes
    _check_chains(graph, cloud)
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes.nodes, shapes.dtypes, strict=True)]
    crossing: dict[int, list[int]] = {}
    for operation in graph.operations:
        if (graph.nodes[operation.source] in cloud) != (graph.nodes[operation.target] in cloud):
            crossing.setdefault(operation.source, []).extend(operation.axes[0])
    main = net.inputs.main
    always = _input_bytes(net)[main] if graph.source in cloud else 0
    always += math.prod(shapes.output) * shapes.dtype.itemsize if graph.sink in cloud else 0
    sides = _side_inputs(net, cloud)
    if isinstance(net.stem, nn.Identity) and main in sides:  # the value of the first node is the input
        crossing.setdefault(0, []).extend(sides.pop(main)[1])
    found = [(float(sizes[node]), tuple(sorted(set(edges)))) for node, edges in crossing.items()]
    found += sides.values()
    return Traffic(graph, float(always), tuple(value for value, _ in found), tuple(edges for _, edges in found))


def _check_chains(graph: Graph, cloud: Collection[str]) -> None:
    """Refuses a placement that parts a chain."""
    for operation in graph.operations:
        end = graph.nodes[operation.target]
        for axis in operation.axes[:-1]:
            within = graph.nodes[graph.targets[axis[0]]]
            if (within in cloud) != (end in cloud):
                raise UserError(
                    f"the node {within!r} lies within layers that run as one up to {end!r}, and cannot be placed apart "
                    "from it; place both on one side"
                )


def _input_bytes(net: SuperNetwork) -> list[int]:
    pairs = zip(net.inputs.shapes, net.inputs.dtypes, strict=True)
    return [math.prod(shape) * dtype.itemsize for shape, dtype in pairs]


def _side_inputs(net: SuperNetwork, cloud: Collection[str]) -> dict[int, tuple[float, tuple[int, ...]]]:
    """The inputs, by number, whose side values edges in the cloud need: their bytes, and these edges.

    The cloud computes side values itself. The main input is none of them if it crosses anyway.
    """
    if net.prelude is None:
        return {}
    body = net.prelude.body.graph
    entries = [node for node in body.nodes if node.op == "placeholder"]
    outputs = cast(Sequence[fx.Node], body.output_node().args[0])
    needs = [_ancestors(output) for output in outputs]
    found = {}
    for i, (entry, size) in enumerate(zip(entries, _input_bytes(net), strict=True)):
        readers = tuple(
            edge
            for operation, module in zip(net.graph.operations, net.edge_modules, strict=True)
            if net.graph.nodes[operation.target] in cloud and isinstance(module, Region)
            if any(entry in needs[side] for side in module.sides)
            for edge in operation.axes[0]
        )
        if readers and not (i == net.inputs.main and net.graph.source in cloud):
            found[i] = (float(size), readers)
    return found


def _ancestors(node: fx.Node) -> set[fx.Node]:
    found, stack = set[fx.Node](), [node]
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack.extend(one.all_input_nodes)
    return found


def read_placement(path: Path, nodes: Sequence[str]) -> frozenset[str]:
    """The nodes in the cloud, from a placement file."""
    value = read_json(path)
    sides = set(value) if isinstance(value, dict) else set()
    if len(sides) != 1 or not sides <= {DEVICE, CLOUD} or not isinstance(next(iter(value.values())), list):
        raise UserError(
            f'the placement {path} names the nodes on one side: {{"{DEVICE}": ["{nodes[0]}", …]}} or '
            f'{{"{CLOUD}": […]}}; correct it'
        )
    side, listed = next(iter(value.items()))
    unknown = [node for node in listed if node not in nodes]
    if unknown:
        raise UserError(f"the placement {path} names {unknown[0]!r}, which is not one of the nodes {_some(nodes)}")
    return frozenset(listed) if side == CLOUD else frozenset(nodes) - frozenset(listed)


def _some(nodes: Sequence[str]) -> str:
    return ", ".join(nodes) if len(nodes) <= SHOWN else f"{', '.join(nodes[:6])}, …, {nodes[-1]}"
