"""The predictor: least squares against enumeration, exact recovery of additive costs, counts by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.costs.latency import predictor
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from tests.random_graphs import examples, small_space


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(5, 9))
@examples(40)
def test_least_squares_without_negative_numbers_is_the_best_over_all_supports(
    seed: int, columns: int, rows: int
) -> None:
    generator = np.random.default_rng(seed)
    matrix, target = generator.standard_normal((rows, columns)), generator.standard_normal(rows)
    found = predictor.nonnegative_least_squares(matrix, target)
    best = float(target @ target)
    for support in itertools.chain.from_iterable(
        itertools.combinations(range(columns), n) for n in range(1, columns + 1)
    ):
        part, *_ = np.linalg.lstsq(matrix[:, support], target, rcond=None)
        if (part >= 0).all():
            best = min(best, float(np.sum((matrix[:, support] @ part - target) ** 2)))
    assert (found >= 0).all()
    assert float(np.sum((matrix @ found - target) ** 2)) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_a_column_of_zeros_costs_nothing() -> None:
    assert predictor.nonnegative_least_squares(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([2.0, 4.0])).tolist() == [
        3,
        0,
    ]


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_features_are_counts_of_edges_nodes_and_additions_by_kind(name: str) -> None:
    net = small_space(name)
    features = predictor.features(net)
    for architecture in predictor.random_architectures(net.graph, 6, seed=4):
        row = features(architecture.gates()[None])[0]
        incoming = [sum(edge.target == node for edge in architecture) for node in net.graph.nodes]
        edges, nodes = features.edge_kind.shape[1], features.node_kind.shape[1]
        assert row[0] == 1
        assert row[1 : 1 + edges].sum() == len(architecture)
        assert row[1 + edges : 1 + edges + nodes].sum() == sum(count > 0 for count in incoming)
        assert row[1 + edges + nodes :].sum() == sum(max(count - 1, 0) for count in incoming)


def test_edges_that_do_the_same_share_a_kind_and_others_do_not() -> None:
    net = small_space("resnet-fabric")
    kind = {edge.name: predictor.features(net).edge_kind[i].argmax() for i, edge in enumerate(net.graph.edges)}
    assert kind["g0b1.spine.block"] == kind["g0b3.spine.block"]
    assert kind["g0b1.spine.block"] != kind["g0b1.spine.skip"]
    assert kind["g1b2.spine.block"] != kind["g2b2.spine.block"]


def truth(net: SuperNetwork, seed: int) -> tuple[predictor.Features, np.ndarray]:
    features = predictor.features(net)
    return features, np.random.default_rng(seed).random(
        features.edge_kind.shape[1] + 2 * features.node_kind.shape[1] + 1
    )


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
def test_an_additive_cost_is_learnt_from_few_networks(name: str) -> None:
    net = small_space(name)
    features, costs = truth(net, 0)
    seen = features(rows(predictor.random_architectures(net.graph, 40, seed=0)))
    unseen = features(rows(predictor.random_architectures(net.graph, 30, seed=1)))
    fitted = predictor.fit(seen, seen @ costs, features.work)
    assert (fitted >= 0).all()
    assert predictor.error(unseen @ fitted, unseen @ costs) < 0.02


def test_one_bad_measurement_does_not_bend_the_fit() -> None:
    net = small_space("resnet-fabric")
    features, costs = truth(net, 1)
    seen = features(rows(predictor.random_architectures(net.graph, 40, seed=0)))
    measured = seen @ costs
    measured[17] *= 4
    unseen = features(rows(predictor.random_architectures(net.graph, 30, seed=1)))
    assert predictor.error(unseen @ predictor.fit(seen, measured, features.work), unseen @ costs) < 0.05


def test_the_weights_of_a_path_are_what_its_network_costs() -> None:
    net = small_space("neural-fabric")
    features, costs = truth(net, 2)
    weights = features.path_weights(costs)
    for seed in range(5):
        path = net.graph.shortest_path(torch.rand(len(weights), generator=torch.Generator().manual_seed(seed)).tolist())
        architecture = Architecture(net.graph, frozenset(net.graph.edges[i].name for i in path))
        cost = features(architecture.gates()[None]) @ costs
        assert float(cost[0]) == pytest.approx(costs[0] + sum(weights[i] for i in path))


def test_random_architectures_connect_and_are_of_every_size() -> None:
    net = small_space("resnet-fabric")
    chosen = predictor.random_architectures(net.graph, 20, seed=3)
    assert chosen == predictor.random_architectures(net.graph, 20, seed=3)
    assert all(architecture.connected and architecture == architecture.live() for architecture in chosen)
    sizes = [len(architecture) for architecture in chosen]
    assert min(sizes) < len(net.graph.edges) * 0.2
    assert max(sizes) > len(net.graph.edges) * 0.8


def rows(architectures: list[Architecture]) -> torch.Tensor:
    return torch.stack([architecture.gates() for architecture in architectures])
