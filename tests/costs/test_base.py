"""`Cost` and `FunctionCost`: the defaults, and functions of users that do more or less than they should."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from budgetnet.costs import Cost, Evidence, FunctionCost, Meter, bind
from budgetnet.costs.deliverable import Deliverable
from budgetnet.errors import Interrupted, UserError
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork

GRAPH = Graph([Edge("a", "x", "y"), Edge("b", "x", "y")])


def network() -> SuperNetwork:
    return SuperNetwork(GRAPH, {"a": nn.Linear(2, 2), "b": nn.Identity()}, input_shape=(2,))


def deliverable(net: SuperNetwork) -> Deliverable:
    return Deliverable(net.graph.full, extract(net, net.graph.full), lambda: b"")


class Edges(Cost):
    """The number of edges, one architecture at a time."""

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        return float(len(architecture.live()))


class ManyEdges(Cost):
    """The same, for many at once."""

    def evaluate(self, live: Tensor) -> Tensor:
        return live.double().sum(1)


@pytest.mark.parametrize("kind", [Edges, ManyEdges])
def test_one_of_two_methods_makes_a_cost(kind: type[Cost]) -> None:
    cost = kind(GRAPH)
    rows = torch.tensor([[True, False], [True, True]])
    assert cost.evaluate(rows).tolist() == [1, 2]
    assert cost(GRAPH.full) == 2
    assert cost.evidence(GRAPH.full) == Evidence(2, 2, {"method": "exact"})
    assert (cost.smallest(), cost.refresh(rows), cost.state_dict()) == (None, {}, {})
    assert cost.certify(deliverable(network()), 1.0).value == 2
    meter = bind(lambda net: kind(net.graph), network())
    assert meter.evaluate(rows).tolist() == [1, 2]


def test_a_cost_that_says_nothing_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="define __call__ or evaluate"):

        class Nothing(Cost):
            unit = "J"


class Accidental:
    """A user's cost whose other methods have the names of ours, and mean something else."""

    def __call__(self, architecture: Architecture) -> float:
        return float(len(architecture))

    def evaluate(self, formula: str) -> str:
        return formula

    measure = certify = evidence = refresh = smallest = recount = state_dict = evaluate

    def unit(self) -> str:
        return "not a unit"

    quantile = stochastic = unit


def test_methods_that_happen_to_have_our_names_are_not_called() -> None:
    net = network()
    meter = bind(lambda net: Accidental(), net)
    assert (meter.unit, meter.stochastic, meter.cost.quantile, meter.cost.measured) == ("", False, None, False)
    assert meter.evaluate(net.graph.full.gates()[None]).tolist() == [2]
    assert meter.evidence(net.graph.full).value == 2
    assert meter.certify(deliverable(net), 5.0).within(5.0)
    assert (meter.cost.smallest(), meter.cost.refresh(torch.ones(1, 2).bool())) == (None, {})


@pytest.mark.parametrize(
    ("attribute", "value", "words"),
    [("unit", 3, "a text"), ("stochastic", "no", "True or False"), ("quantile", "high", "a number")],
)
def test_a_declaration_of_the_wrong_type_is_refused(attribute: str, value: object, words: str) -> None:
    def energy(net: SuperNetwork) -> Callable[[Architecture], float]:
        return lambda architecture: 1.0

    setattr(energy, attribute, value)
    with pytest.raises(UserError, match=f"`{attribute}` of the cost energy .* {words}"):
        bind(energy, network())


def test_a_function_that_calls_exit_is_one_sentence() -> None:
    with pytest.raises(UserError, match="the cost energy called exit, for an architecture of 2 edges; correct"):
        FunctionCost(GRAPH, lambda _: sys.exit(3), "energy")(GRAPH.full)
    with pytest.raises(UserError, match="the cost exit called exit; correct the function"):
        bind(_exit, network())


def _exit(net: SuperNetwork) -> Callable[[Architecture], float]:
    sys.exit("enough")


_exit.__name__ = "exit"


def test_a_long_error_of_several_lines_becomes_one_short_line() -> None:
    def energy(architecture: Architecture) -> float:
        raise ValueError("first line\n" + 5000 * "x")

    with pytest.raises(UserError, match="raised ValueError: first line, for an architecture") as error:
        FunctionCost(GRAPH, energy, "energy")(GRAPH.full)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_wish_to_stop_passes() -> None:
    def energy(architecture: Architecture) -> float:
        raise Interrupted

    with pytest.raises(Interrupted):
        FunctionCost(GRAPH, energy, "energy")(GRAPH.full)


def test_a_factory_without_a_signature_is_one_sentence() -> None:
    with pytest.raises(UserError, match="the cost dict has no signature"):
        bind(dict, network())


def test_annotations_that_cannot_be_looked_up_are_left_alone() -> None:
    def energy(net: SuperNetwork, volts: Nowhere = 1.0) -> Callable[[Architecture], float]:  # type: ignore[name-defined]  # noqa: F821
        return lambda architecture: 1.0

    assert bind(energy, network())(GRAPH.full) == 1


class Raising(Cost):
    """A user's own `Cost` with faults."""

    def evaluate(self, live: Tensor) -> Tensor:
        raise KeyError("volts")

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        raise RuntimeError("no meter")


def test_the_errors_of_a_users_cost_class_are_one_sentence() -> None:
    net = network()
    meter = bind(lambda net: Raising(net.graph), net)
    with pytest.raises(UserError, match="raised KeyError: 'volts'; correct it"):
        meter(net.graph.full)
    with pytest.raises(UserError, match="raised RuntimeError: no meter; correct it"):
        meter.certify(deliverable(net), 1.0)


class Negative(Cost):
    def evaluate(self, live: Tensor) -> Tensor:
        return -live.double().sum(1)


def test_the_values_of_a_users_cost_class_are_checked() -> None:
    with pytest.raises(UserError, match=r"is -2\.0; a cost must be a finite number"):
        bind(lambda net: Negative(net.graph), network())(GRAPH.full)


def test_a_cost_that_changes_its_mind_fails_its_certificate() -> None:
    """It is asked again for the certificate, not looked up: a cost that was cheap while searching is found out."""
    values: Mapping[str, list[float]] = {"later": [3.0, 5.0], "steady": [3.0, 3.0]}
    for name, given in values.items():
        left = iter(given)
        meter = Meter(FunctionCost(GRAPH, lambda _, left=left: next(left), name))  # type: ignore[misc]
        assert meter(GRAPH.full) == 3.0
        evidence = meter.certify(deliverable(network()), 10.0)
        assert evidence.value == given[1]
        assert evidence.within(10.0) is (name == "steady")
        assert evidence.how.get("value_before", 3.0) == 3.0


def test_without_a_search_before_it_a_certificate_asks_twice() -> None:
    left = iter([3.0, 2.0])
    meter = Meter(FunctionCost(GRAPH, lambda _: next(left), "fickle"))
    evidence = meter.certify(deliverable(network()), 10.0)
    assert not evidence.within(10.0)
    assert evidence.upper_bound == 3.0
