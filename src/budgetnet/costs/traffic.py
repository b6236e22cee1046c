"""`traffic`: bytes per input that cross between the device and the cloud, for a given placement of the nodes.

A placement file names the nodes on one side, {"device": ["g0b1", …]} or {"cloud": [...]}; all others are on the other
side. Edges run where the node is that they lead to, so a node's value crosses once, however many edges need it there.
The input begins and the output ends on the device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from budgetnet.costs.base import Cost, least_path
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork

DEVICE, CLOUD = "device", "cloud"


@dataclass(eq=False)
class Traffic(Cost):
    """`always` crosses anyway; `values[i]` does if one of the edges `crossing[i]`, all of one node, is live."""

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
    """Bytes per input that cross between device and cloud; `placement` is a JSON file that places the nodes."""
    return place(net, read_placement(Path(placement), net.graph.nodes))


def place(net: SuperNetwork, cloud: Collection[str]) -> Traffic:
    """The traffic with these nodes in the cloud and all others on the device."""
    graph, shapes = net.graph, net.shapes
    sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes.nodes, shapes.dtypes, strict=True)]
    crossing = {
        node: tuple(e for e in outgoing if (graph.edges[e].source in cloud) != (graph.edges[e].target in cloud))
        for node, outgoing in enumerate(graph.outgoing)
    }
    always = math.prod(net.input_shape) * net.input_dtype.itemsize if graph.source in cloud else 0
    always += math.prod(shapes.output) * shapes.dtype.itemsize if graph.sink in cloud else 0
    nodes = [node for node, edges in crossing.items() if edges]
    return Traffic(
        graph, float(always), tuple(float(sizes[node]) for node in nodes), tuple(crossing[node] for node in nodes)
    )


def read_placement(path: Path, nodes: Sequence[str]) -> frozenset[str]:
    """The nodes in the cloud, from a placement file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the placement {path} cannot be read ({error.strerror}); check the path") from None
    except ValueError as error:
        raise UserError(f"the placement {path} is not JSON ({error}); correct it") from None
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
    return ", ".join(nodes) if len(nodes) <= 12 else f"{', '.join(nodes[:6])}, …, {nodes[-1]}"
