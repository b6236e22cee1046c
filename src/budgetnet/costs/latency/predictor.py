"""A stand-in for measuring: per-edge and per-node costs plus overhead, fitted to measured whole networks.

Edges that do the same (equal modules, equal shapes) share one cost, so that few measurements tell all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from budgetnet.costs.counts import macs
from budgetnet.export.pieces import signature
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork

Array = np.ndarray[Any, np.dtype[np.float64]]

RIDGE = 1e-3
"""Weight of the prior against the measurements: it decides only what these leave open."""
OUTLIER = 0.05
"""Relative errors beyond this count linearly, not squared: a disturbed measurement must not bend the rest."""
ROBUST_PASSES = 4


@dataclass(frozen=True, eq=False)
class Features:
    """Counts that make up a network's cost: one, and edges, nodes and additions at nodes, each by kind."""

    graph: Graph
    edge_kind: Array
    """Edges × edge kinds, one-hot."""
    node_kind: Array
    """Nodes × node kinds, one-hot; the source, which is always there, has none."""
    work: Array
    """For each feature the multiply-adds of one such thing: what it costs relative to others before any measurement."""

    def __call__(self, live: Tensor) -> Array:
        """Rows of live gates (n × edges) as rows of counts, float64."""
        gates = live.numpy().astype(np.float64)
        inputs = np.stack([gates[:, list(ends)].sum(1) for ends in self.graph.incoming], 1)
        nodes = (inputs > 0) @ self.node_kind
        additions = np.maximum(inputs - 1, 0) @ self.node_kind
        return np.concatenate([np.ones((len(gates), 1)), gates @ self.edge_kind, nodes, additions], 1)

    def path_weights(self, coefficients: Array) -> list[float]:
        """What each edge adds to a network that is a single path: itself and the node that it leads to."""
        edges, nodes = self.edge_kind.shape[1], self.node_kind.shape[1]
        per_edge = self.edge_kind @ coefficients[1 : 1 + edges]
        per_node = self.node_kind @ coefficients[1 + edges : 1 + edges + nodes]
        weights: list[float] = (per_edge + per_node[list(self.graph.targets)]).tolist()
        return weights


def features(net: SuperNetwork) -> Features:
    """The features of a super network."""
    graph, shapes = net.graph, net.shapes
    edge_kinds = [
        (signature(module) or edge.name, shapes.nodes[source], shapes.sums[target])
        for module, edge, source, target in zip(
            net.edge_modules, graph.edges, graph.sources, graph.targets, strict=True
        )
    ]
    node_kinds = [
        (signature(module) or node, shapes.sums[i])
        for i, (node, module) in enumerate(zip(graph.nodes, net.activations, strict=True))
    ]
    edge_kind, node_kind = _one_hot(edge_kinds), _one_hot(node_kinds[1:])
    node_kind = np.concatenate([np.zeros((1, node_kind.shape[1])), node_kind])
    cost = macs(net)
    sums = np.array([float(np.prod(shape)) for shape in shapes.sums])
    modules = cost.edges.numpy() - sums[list(graph.targets)]
    work = [np.array([cost.base]), _mean(modules, edge_kind), _mean(sums, node_kind), _mean(sums, node_kind)]
    return Features(graph, edge_kind, node_kind, np.concatenate(work))


def _one_hot(kinds: Iterable[Hashable]) -> Array:
    kinds = list(kinds)
    column = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    matrix = np.zeros((len(kinds), len(column)))
    matrix[np.arange(len(kinds)), [column[kind] for kind in kinds]] = 1
    return matrix


def _mean(values: Array, kind: Array) -> Array:
    mean: Array = values @ kind / kind.sum(0)
    return mean


def fit(counts: Array, measured: Array, work: Array) -> Array:
    """Costs that are not negative and give the least (Huber) relative error on the measured networks.

    A weak prior, a cost per multiply-add and one per operation, both fitted first, stands in where these say nothing.
    """
    relative = counts / measured[:, None]
    ones = np.ones(len(measured))
    simple = np.stack([work / work.max(), np.ones_like(work)], 1)
    prior = simple @ nonnegative_least_squares(relative @ simple, ones)
    rows = np.sqrt(RIDGE * len(measured)) * np.diag(np.maximum(relative.mean(0), 1e-12))
    trust, solution = ones, prior
    for _ in range(ROBUST_PASSES):
        matrix = np.concatenate([relative * trust[:, None], rows])
        solution = nonnegative_least_squares(matrix, np.concatenate([trust, rows @ prior]))
        off = np.abs(relative @ solution - 1)
        trust = np.sqrt(np.minimum(1, OUTLIER / np.maximum(off, 1e-12)))
    return solution


def nonnegative_least_squares(matrix: Array, target: Array, sweeps: int = 2000, tolerance: float = 1e-10) -> Array:
    """argmin_{x ≥ 0} ‖matrix·x − target‖², by coordinate descent on the normal equations."""
    scale = np.linalg.norm(matrix, axis=0)
    used = scale > 0
    columns = matrix[:, used] / scale[used]
    gram, x = columns.T @ columns, np.zeros(int(used.sum()))
    gradient = -columns.T @ target
    for _ in range(sweeps):
        largest = 0.0
        for i in range(len(x)):
            step = max(-x[i], -gradient[i])
            if step:
                x[i] += step
                gradient += step * gram[:, i]
                largest = max(largest, abs(step))
        if largest < tolerance:
            break
    solution = np.zeros(matrix.shape[1])
    solution[used] = x / scale[used]
    return solution


def error(predicted: Array, measured: Array) -> float:
    """The mean absolute error, relative to what was measured."""
    return float(np.mean(np.abs(predicted / measured - 1)))


def random_architectures(graph: Graph, count: int, seed: int) -> list[Architecture]:
    """Live architectures of every density: a random path, and each other edge with a probability from 0 to 0.95."""
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for density in np.linspace(0, 0.95, count):
        gates = torch.rand(len(graph.edges), generator=generator) < float(density)
        weights = torch.rand(len(graph.edges), generator=generator)
        gates[graph.shortest_path(weights.tolist())] = True
        chosen.append(graph.architecture(gates).live())
    return chosen
