"""A stand-in for measuring: per-edge and per-node costs plus overhead, fitted to measured whole networks.

Edges that do the same (equal modules, equal shapes) share one cost, so that few measurements tell all of them. The time
of a bundle is not linear in its width: it has a cost for being there, and one for each range of widths.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from budgetnet.costs.counts import BundleCost, macs
from budgetnet.costs.kinds import kind_of
from budgetnet.export.pieces import signature
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork

Array = np.ndarray[Any, np.dtype[np.float64]]

RIDGE = 1e-3
"""Weight of the prior against the measurements: it decides only what these leave open."""
FEW_RIDGE = 0.1
"""The same where fewer networks were measured than there are costs to find: these alone would leave too much open."""
OUTLIER = 0.05
"""Relative errors beyond this count linearly, not squared: a disturbed measurement must not bend the rest."""
ROBUST_PASSES = 4
"""Times that the fit is repeated with less trust in networks that are far off; the trust hardly changes after that."""
SPREAD = 0.8
"""How far the density of a bundle's units may be from that of its network, so that widths are seen apart."""


RAMPS = (0.0, 0.25, 0.5, 1.0)
"""Shares of a bundle's multiply-adds between which its time is a straight line: half the work is not half the time.

Few, since each has to be told from a few measured networks; steps of the hardware within them are part of the error.
"""


@dataclass(frozen=True, eq=False)
class Features:
    """Counts that make up a network's cost: one, then operations, nodes and additions at nodes, each by kind.

    A kind of bundle has several: whether it is there, and how far its work goes into each range of `RAMPS`.
    """

    graph: Graph
    edge_kind: Array
    """Operations × kinds, one-hot; an operation is an edge, or the units of a bundle that run as one layer."""
    node_kind: Array
    """Nodes × node kinds, one-hot; the source, which is always there, has none."""
    bundle_kind: Array
    """Bundles × kinds of bundles, one-hot."""
    bundles: tuple[BundleCost, ...]
    """The multiply-adds of each bundle for every set of units."""
    work: Array
    """For each feature the multiply-adds of one such thing: what it costs relative to others before any measurement."""

    def __call__(self, live: Tensor) -> Array:
        """Rows of live gates (n × edges) as rows of counts, float64."""
        gates = live.numpy()
        operations = np.stack([gates[:, list(each.axes[0])].any(1) for each in self.graph.operations], 1)
        leads = _one_hot_of([each.target for each in self.graph.operations], len(self.graph.nodes))
        inputs = operations.astype(np.float64) @ leads
        nodes = (inputs > 0) @ self.node_kind
        additions = np.maximum(inputs - 1, 0) @ self.node_kind
        ramps = [ramp @ self.bundle_kind for ramp in self._ramps(live)]
        return np.concatenate([np.ones((len(gates), 1)), operations @ self.edge_kind, nodes, additions, *ramps], 1)

    def _ramps(self, live: Tensor) -> list[Array]:
        """For each range, how much of it the work of each bundle (n × bundles) fills."""
        if not self.bundles:
            return []
        shares = np.stack([_share(bundle, live) for bundle in self.bundles], 1)
        return [np.clip(shares, low, high) - low for low, high in itertools.pairwise(RAMPS)]

    def path_weights(self, coefficients: Array) -> list[float]:
        """What each edge adds to a network that is a single path: itself and the node that it leads to."""
        edges, nodes = self.edge_kind.shape[1], self.node_kind.shape[1]
        per_edge = self.edge_kind @ coefficients[1 : 1 + edges]
        per_node = self.node_kind @ coefficients[1 + edges : 1 + edges + nodes]
        weights = np.zeros(len(self.graph.edges))
        for operation, weight in zip(self.graph.operations, per_edge, strict=True):
            weights[list(operation.edges)] = weight + per_node[operation.target]
        return weights.tolist()


def features(net: SuperNetwork) -> Features:
    """The features of a super network.

    Args:
        net: The super network.

    Returns:
        A column for every kind of operation, of node and of addition; of a kind of bundle one for each range of widths.
    """
    graph, shapes, cost = net.graph, net.shapes, macs(net)
    kinds = [
        (kind_of(module, each.name), shapes.nodes[each.source], shapes.sums[each.target])
        for module, each in zip(net.edge_modules, graph.operations, strict=True)
    ]
    node_kinds = [
        (signature(module) or node, shapes.sums[i])
        for i, (node, module) in enumerate(zip(graph.nodes, net.activations, strict=True))
    ]
    edge_kind, node_kind = _one_hot(kinds), _one_hot(node_kinds[1:])
    node_kind = np.concatenate([np.zeros((1, node_kind.shape[1])), node_kind])
    bundle_kind = _one_hot([kind for kind, each in zip(kinds, graph.operations, strict=True) if each.bundle])
    sums = np.array([float(np.prod(shape)) for shape in shapes.sums])
    own = [0.0 if e.bundle else float(cost.edges[e.edges[0]]) - sums[e.target] for e in graph.operations]
    full = np.array([float(bundle.count.evaluate(_all_units(bundle))) for bundle in cost.bundles])
    ramps = [_mean(full, bundle_kind)] * (len(RAMPS) - 1 if cost.bundles else 0)
    work = [np.array([cost.base]), _mean(np.array(own), edge_kind), _mean(sums, node_kind), _mean(sums, node_kind)]
    return Features(graph, edge_kind, node_kind, bundle_kind, cost.bundles, np.concatenate([*work, *ramps]))


def _all_units(bundle: BundleCost) -> list[Tensor]:
    return [torch.ones(1, len(axis), dtype=torch.bool) for axis in bundle.axes]


def _share(bundle: BundleCost, live: Tensor) -> Array:
    """The multiply-adds that are kept of a bundle, as a share of all; 0 where none of it is live."""
    kept = [live[:, list(axis)] for axis in bundle.axes]
    full = float(bundle.count.evaluate(_all_units(bundle)))
    share = bundle.count.evaluate(kept) * kept[0].any(1) / max(full, 1.0)
    return share.numpy()


def _one_hot_of(columns: Sequence[int], count: int) -> Array:
    matrix = np.zeros((len(columns), count))
    matrix[np.arange(len(columns)), columns] = 1
    return matrix


def _one_hot(kinds: Iterable[Hashable]) -> Array:
    kinds = list(kinds)
    column = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
    return _one_hot_of([column[kind] for kind in kinds], len(column))


def _mean(values: Array, kind: Array) -> Array:
    mean: Array = values @ kind / kind.sum(0)
    return mean


def fit(counts: Array, measured: Array, work: Array) -> Array:
    """Costs that are not negative and give the least (Huber) relative error on the measured networks.

    A weak prior, a cost per multiply-add and one per operation, both fitted first, stands in where these say nothing.

    Args:
        counts: A row of features for each measured network.
        measured: What each of them took.
        work: The multiply-adds of one of each feature.

    Returns:
        A cost for each feature.
    """
    relative = counts / measured[:, None]
    ones = np.ones(len(measured))
    simple = np.stack([work / work.max(), np.ones_like(work)], 1)
    prior = simple @ nonnegative_least_squares(relative @ simple, ones)
    ridge = RIDGE if len(measured) >= counts.shape[1] else FEW_RIDGE
    rows = np.sqrt(ridge * len(measured)) * np.diag(np.maximum(relative.mean(0), 1e-12))
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
    """The mean absolute error, relative to what was measured.

    Args:
        predicted: Predictions.
        measured: What was measured, in the same unit.

    Returns:
        The mean of |predicted / measured − 1|.
    """
    return float(np.mean(np.abs(predicted / measured - 1)))


def random_architectures(graph: Graph, count: int, seed: int) -> list[Architecture]:
    """Live architectures of every density: a random path, and each other edge with a probability from 0 to 0.95.

    Args:
        graph: The graph.
        count: How many.
        seed: Which ones.

    Returns:
        The architectures, the sparsest first; the units of a bundle have a density of their own.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = []
    for density in np.linspace(0, 0.95, count):
        likely = torch.full((len(graph.edges),), float(density))
        for units in graph.bundles.values():
            likely[list(units)] += SPREAD * (torch.rand((), generator=generator) - 0.5)
        gates = torch.rand(len(graph.edges), generator=generator) < likely
        weights = torch.rand(len(graph.edges), generator=generator)
        gates[graph.shortest_path(weights.tolist())] = True
        chosen.append(graph.architecture(gates).live())
    return chosen
