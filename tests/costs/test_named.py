"""`bind`: costs by their text, by a user's factory or as a user's `Cost`, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from budgetnet.costs import COSTS, bind, macs, params, size, steps
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from tests.small_runs import mlp

GRAPH = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")])


def network() -> SuperNetwork:
    modules = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 3), "skip": nn.Identity()}
    return SuperNetwork(GRAPH, modules, input_shape=(3,))


def kept(*names: str) -> Architecture:
    return Architecture(GRAPH, frozenset(names))


@pytest.mark.parametrize(
    ("text", "unit", "reference"),
    [
        ("macs", "macs", lambda net: macs(net)),
        ("macs(paper)", "macs", lambda net: macs(net, "paper")),
        ("macs( accounting = paper )", "macs", lambda net: macs(net, "paper")),
        ("params", "params", params),
        ("size", "B", size),
        ("steps(4)", "steps", lambda net: steps(net, 4)),
        ("steps(4, dfs)", "steps", lambda net: steps(net, 4, "dfs")),
        ("steps(allocation=dfs,machines=2)", "steps", lambda net: steps(net, 2, "dfs")),
    ],
)
def test_a_cost_is_bound_from_its_text(text: str, unit: str, reference: Callable[..., Any]) -> None:
    net = network()
    meter = bind(text, net)
    assert (meter.unit, meter.stochastic) == (unit, False)
    assert meter.name == text.replace(" ", "")
    for architecture in (GRAPH.full, kept("skip"), kept("a", "b")):
        assert meter(architecture) == reference(net)(architecture)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["''", "NAME"]),
        ("macs(", ["'macs('"]),
        ("flips", ["'flips'", ", ".join(COSTS)]),
        ("macs(honest)", ["'honest'", "true or paper"]),
        ("macs(paper,dfs)", ["'dfs'", "macs(accounting)"]),
        ("params(3)", ["'3'", "params"]),
        ("steps", ["steps needs machines", "steps(4)"]),
        ("steps()", ["steps needs machines"]),
        ("steps(0)", ["0 machines"]),
        ("steps(many)", ["machines of steps", "'many'"]),
        ("steps(2,2)", ["'2'", "critical-path"]),
        ("steps(2,machines=3)", ["'machines=3'"]),
        ("steps(cores=3)", ["'cores=3'", "machines, allocation"]),
        ("no.such.module:cost", ["no.such.module"]),
    ],
)
def test_a_cost_that_does_not_exist_or_fit_is_refused(text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        bind(text, network())
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_users_factory_is_called_with_the_super_network() -> None:
    def energy(net: SuperNetwork) -> Callable[[Architecture], float]:
        joules = {edge.name: i + 1.0 for i, edge in enumerate(net.graph.edges)}
        return lambda architecture: sum(joules[edge.name] for edge in architecture.live())

    energy.unit, energy.stochastic = "J", True  # type: ignore[attr-defined]
    meter = bind(energy, network())
    assert (meter.name, meter.unit, meter.stochastic) == ("energy", "J", True)
    assert meter(kept("a", "b")) == 3


def test_the_unit_may_be_on_what_the_factory_returns() -> None:
    class Energy:
        unit = "J"

        def __call__(self, architecture: Architecture) -> float:
            return 1.0

    meter = bind(lambda net: Energy(), network())
    assert (meter.unit, meter.takes_batch) == ("J", False)


def test_a_users_cost_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def energy(net, volts: float = 1.0):\n    return lambda arch: volts * len(arch)\nenergy.unit = 'J'\n"
    (tmp_path / "own_cost_for_a_test.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    meter = bind("own_cost_for_a_test:energy(volts=2.5)", network(), own=["own_cost_for_a_test:energy"])
    assert (meter.name, meter.unit) == ("own_cost_for_a_test:energy(volts=2.5)", "J")
    assert meter(GRAPH.full) == 7.5


@pytest.mark.parametrize(
    ("factory", "words"),
    [(lambda net: 3.0, "gave a float"), (lambda net: net.nothing, "raised AttributeError")],
)
def test_a_factory_that_makes_no_function_is_refused(factory: Callable[..., Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        bind(factory, network())


@pytest.mark.parametrize("name", ["flops", "FLOPs", "parameters"])
def test_other_names_of_a_cost_are_answered_with_ours(name: str) -> None:
    with pytest.raises(UserError, match=f"there is no cost '{name}'; use (macs|params)"):
        bind(name, mlp())
