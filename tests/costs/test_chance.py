"""Random costs: bounds of a mean and of a quantile hold as often as they say, and `Meter` uses them."""

from __future__ import annotations

import itertools
import math
import random
from statistics import fmean, stdev

import pytest
from torch import nn

from budgetnet.costs import FunctionCost, Meter, bind
from budgetnet.costs.chance import bounding_rank, draws_needed, mean_bound, quantile_bound
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork

GRAPH = Graph([Edge("a", "x", "y"), Edge("b", "x", "y")])


def network() -> SuperNetwork:
    return SuperNetwork(GRAPH, {"a": nn.Linear(2, 2), "b": nn.Identity()}, input_shape=(2,))


@pytest.mark.parametrize(("count", "quantile"), [(20, 0.5), (60, 0.95), (100, 0.9), (400, 0.95)])
def test_the_bounding_rank_is_that_of_the_binomial_distribution(count: int, quantile: float) -> None:
    def below(k: int) -> float:
        return sum(math.comb(count, j) * quantile**j * (1 - quantile) ** (count - j) for j in range(k))

    rank = bounding_rank(count, quantile)
    assert below(rank) >= 0.95 > below(rank - 1)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_the_draws_needed_are_the_fewest_with_a_bound(quantile: float) -> None:
    needed = draws_needed(quantile)
    assert 1 - quantile**needed >= 0.95 > 1 - quantile ** (needed - 1)


def test_bounds_cover_the_truth_about_as_often_as_they_say() -> None:
    chance = random.Random(0)
    means = quantiles = 0
    for _ in range(400):
        draws = [chance.expovariate(1.0) for _ in range(100)]
        means += mean_bound(draws)[1] >= 1.0
        quantiles += quantile_bound(draws, 0.9)[1] >= -math.log(0.1)
    assert 0.90 <= means / 400 <= 0.99
    assert 0.93 <= quantiles / 400 <= 0.99


def test_a_mean_bound_by_hand() -> None:
    draws = [1.0, 2.0, 4.0, 9.0]
    assert mean_bound(draws) == pytest.approx((4.0, 4.0 + 1.6448536 * stdev(draws) / 2))
    assert mean_bound([3.0]) == (3.0, 3.0)


def test_a_quantile_is_asked_for_by_an_attribute() -> None:
    def delay(net: SuperNetwork):  # type: ignore[no-untyped-def]
        values = itertools.cycle(range(1, 101))
        return lambda architecture: float(next(values))

    delay.unit, delay.quantile = "s", 0.95  # type: ignore[attr-defined]
    meter = bind(delay, network())
    assert (meter.stochastic, meter.cost.quantile, meter.unit) == (True, 0.95, "s")
    evidence = meter.evidence(GRAPH.full)
    assert evidence.value == 95
    assert 95 < evidence.upper_bound <= 100
    assert evidence.how["samples"] == 400
    assert meter.evaluate(GRAPH.full.gates()[None]).item() > 50


@pytest.mark.parametrize("quantile", [0, 1, -0.2, 95])
def test_a_quantile_outside_of_zero_and_one_is_refused(quantile: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        FunctionCost(GRAPH, lambda _: 1.0, "odd", quantile=quantile)


@pytest.mark.parametrize("quantile", [0.9999, 1 - 1e-12])
def test_a_quantile_that_takes_too_many_draws_is_refused_with_their_number(quantile: float) -> None:
    with pytest.raises(UserError, match=f"takes {draws_needed(quantile):,} draws, more than 10,000"):
        FunctionCost(GRAPH, lambda _: 1.0, "rare", quantile=quantile)


def test_a_cost_of_the_batch_is_averaged_over_batches() -> None:
    meter = Meter(FunctionCost(GRAPH, lambda architecture, batch: len(architecture) * float(batch), "energy"))
    assert meter.takes_batch
    evidence = meter.evidence(GRAPH.full, [1, 2, 6])
    assert evidence.value == fmean([2, 4, 12])
    assert evidence.upper_bound == pytest.approx(6 + 1.6448536 * stdev([2, 4, 12]) / math.sqrt(3))
    meter.example = 5
    assert meter(Architecture(GRAPH, frozenset({"a"}))) == 5
    assert meter.full == 10
    assert meter.evaluate(GRAPH.full.gates()[None], 3).item() == 6
