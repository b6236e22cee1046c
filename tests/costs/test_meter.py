"""`Meter`: once per distinct live architecture, users' functions, inconsistent samples, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from budgetnet.costs import Meter, bind, macs
from budgetnet.costs import meter as meter_module
from budgetnet.costs.base import STOCHASTIC_DRAWS, FunctionCost
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from tests.random_graphs import examples, graphs, random_gates

GRAPH = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")])


def network() -> SuperNetwork:
    modules = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 3), "skip": nn.Identity()}
    return SuperNetwork(GRAPH, modules, input_shape=(3,))


def kept(*names: str) -> Architecture:
    return Architecture(GRAPH, frozenset(names))


def meter_of(graph: Graph, function: Callable[..., float], name: str, **options: Any) -> Meter:
    return Meter(FunctionCost(graph, function, name, **options))


def rows(*architectures: Architecture) -> Tensor:
    return torch.stack([architecture.gates() for architecture in architectures])


@given(graphs(), st.integers(0, 2**31))
@examples(40)
def test_a_function_is_called_once_per_distinct_live_architecture(graph: Graph, seed: int) -> None:
    seen: list[Architecture] = []

    def cost(architecture: Architecture) -> float:
        seen.append(architecture)
        return float(len(architecture))

    meter = meter_of(graph, cost, "edges")
    gates = random_gates(graph, 20, seed)
    expected = [len(graph.architecture(row).live()) for row in gates]
    assert meter.evaluate(gates).tolist() == expected
    assert meter.evaluate(gates.flip(0)).tolist() == expected[::-1]
    assert len(seen) == len(set(seen)) == len({graph.architecture(row).live() for row in gates})
    assert all(architecture == architecture.live() for architecture in seen)


def test_dead_edges_change_no_cost() -> None:
    meter = meter_of(GRAPH, lambda architecture: float(len(architecture)), "edges")
    assert meter(kept("skip", "a")) == meter(kept("skip")) == 1


def test_an_inconsistent_sample_is_charged_the_full_cost() -> None:
    meter = bind("macs", network())
    full = macs(network())(GRAPH.full)
    assert meter.full == full
    assert meter.evaluate(rows(kept("a"), kept("skip"), kept(), GRAPH.full)).tolist() == [full, 0, full, full]
    assert meter(kept("b")) == full


def test_an_inconsistent_sample_costs_the_full_network_on_that_batch() -> None:
    def cost(architecture: Architecture, batch: Tensor) -> float:
        return len(architecture) * float(batch.sum())

    meter = meter_of(GRAPH, cost, "per batch")
    assert meter.takes_batch
    batch = torch.full((2,), 5.0)
    assert meter.evaluate(rows(kept("a"), kept("skip")), batch).tolist() == [30, 10]
    assert meter.evaluate(rows(kept("a"), kept("skip")), batch * 2).tolist() == [60, 20]
    assert meter(kept("a", "b"), batch) == 20


def test_a_stochastic_cost_is_drawn_again_at_every_evaluation_and_averaged_for_one_number() -> None:
    values = iter(range(100_000))
    meter = meter_of(GRAPH, lambda _: float(next(values)), "random", stochastic=True)
    same = rows(kept("skip"), kept("skip"))
    assert meter.evaluate(same).tolist() == [0, 1]
    assert meter.evaluate(same).tolist() == [2, 3]
    draws = STOCHASTIC_DRAWS
    assert meter(kept("skip")) == pytest.approx(4 + (draws - 1) / 2)


def test_a_full_memory_starts_anew_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "CACHED", 2)
    meter = meter_of(GRAPH, lambda architecture: float(len(architecture)), "edges")
    gates = rows(kept("skip"), kept("a", "b"), GRAPH.full)
    for _ in range(3):
        assert meter.evaluate(gates).tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "many", None])
def test_a_value_that_is_no_cost_is_refused(value: Any) -> None:
    meter = meter_of(GRAPH, lambda _: value, "odd")
    with pytest.raises(UserError, match="the cost odd"):
        meter(GRAPH.full)


def test_a_function_that_raises_is_named_with_its_error() -> None:
    def energy(_net: SuperNetwork) -> Callable[[Architecture], float]:
        return lambda architecture: {}["volts"]

    with pytest.raises(UserError, match="the cost energy raised KeyError: 'volts', for an architecture of 3 edges"):
        bind(energy, network())(GRAPH.full)


def test_a_users_own_error_for_users_passes_unchanged() -> None:
    def cost(_: Architecture) -> float:
        raise UserError("charge the battery")

    with pytest.raises(UserError, match=r"^charge the battery$"):
        meter_of(GRAPH, cost, "battery")(GRAPH.full)


def test_an_empty_batch_of_gates_has_no_costs() -> None:
    for name in ("macs", "steps(2)"):
        assert bind(name, network()).evaluate(torch.zeros(0, 3, dtype=torch.bool)).shape == (0,)
