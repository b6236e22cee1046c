"""Capacity is what the extracted network has, and samples that are chosen by it are those of most."""

import math

import pytest
import torch

from budgetnet.costs import macs
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.capacity import capacity_of
from budgetnet.strategies.local_search import samples
from tests.random_graphs import generator, random_gates, small_space
from tests.small_runs import mlp
from tests.strategies.test_local_search import make


@pytest.mark.parametrize("net", [mlp(4), small_space("resnet-fabric", width=2)], ids=["mlp", "fabric"])
def test_capacity_counts_what_is_extracted(net: SuperNetwork) -> None:
    live = net.graph.live(random_gates(net.graph, 16, seed=1))
    live = live[live.any(1)]
    assert len(live) > 3
    for row, found in zip(live, capacity_of(net)(live).tolist(), strict=True):
        architecture = net.graph.architecture(row)
        parameters = sum(p.numel() for p in extract(net, architecture).parameters())
        assert math.isclose(math.exp(found), parameters * macs(net)(architecture), rel_tol=1e-4)


def test_samples_are_the_third_of_most_capacity_among_those_close_to_the_budget() -> None:
    net = small_space("resnet-fabric", width=2)
    settler, (budget,) = make(net, ["macs<=60%"], seed=5)
    distribution, again = EdgeDistribution(net.graph, 0.0), generator(5)
    found = list(samples(distribution, settler, 4, capacity_of(net), spare=3))
    close: dict[bytes, tuple[float, torch.Tensor]] = {}
    while len(close) < 12:
        for row in net.graph.live(distribution.sample(64, again, connected=True).gates):
            cost, parameters = budget.meter(net.graph.architecture(row)), 0
            if 0.9 * budget.maximum <= cost <= budget.maximum:
                parameters = sum(p.numel() for p in extract(net, net.graph.architecture(row)).parameters())
                close.setdefault(row.numpy().tobytes(), (cost * parameters, row))
    bar = sorted((size for size, _ in close.values()), reverse=True)[max(4, len(close) // 3) - 1]
    expected = [row for size, row in close.values() if size >= bar][:4]
    assert len(found) == 4
    assert len({size >= bar for size, _ in close.values()}) == 2
    assert all(not bool((row & ~filled).any()) for row, filled in zip(expected, found, strict=True))
