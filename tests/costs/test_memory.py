"""`peak_memory`: liveness against brute force, the analysis against real allocations and enumeration."""

from __future__ import annotations

import itertools
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from budgetnet.costs import bind
from budgetnet.costs.footprints import Call, Footprint, peak, run_peak, state_bytes
from budgetnet.costs.latency.predictor import random_architectures
from budgetnet.costs.memory import peak_memory
from budgetnet.errors import UserError
from budgetnet.network.extract import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric
from tests.random_graphs import examples, small_space


def brute_force(calls: list[Call]) -> int:
    """At every call: what it holds itself, and every earlier value that it or a later call reads, once per storage."""

    def storage(value: int) -> int:
        while value and not calls[value - 1].footprint.output:
            value = calls[value - 1].reads[0]
        return value

    def held(step: int) -> int:
        wanted = {storage(value) for call in calls[step:] for value in call.reads} | {storage(len(calls))}
        return sum(calls[value - 1].footprint.output for value in wanted if 0 < value <= step)

    return max([held(step) + call.footprint.peak for step, call in enumerate(calls)] + [held(len(calls))])


@st.composite
def programs(draw: st.DrawFn) -> list[Call]:
    """Calls that read earlier values, some of them aliases of their input; every value but the last is read."""
    calls: list[Call] = []
    for i in range(draw(st.integers(1, 9))):
        reads = tuple(draw(st.lists(st.integers(0, i), min_size=1, max_size=3)))
        output = draw(st.sampled_from([0, 1, 5, 7]))
        calls.append(Call((i, *reads), Footprint(0, output + draw(st.integers(0, 9)), output)))
    return calls


@given(programs())
@examples(200)
def test_liveness_is_that_of_brute_force(calls: list[Call]) -> None:
    assert peak(calls) == brute_force(calls)


def test_a_chain_by_hand() -> None:
    """10 → 20 → 5: the second call holds its input, 10, and at its peak 25; then the third 20 and 6."""
    calls = [Call((0,), Footprint(0, 10, 10)), Call((1,), Footprint(0, 25, 20)), Call((2,), Footprint(0, 6, 5))]
    assert peak(calls) == 35


@pytest.mark.parametrize("name", ["resnet-fabric", "neural-fabric"])
@pytest.mark.parametrize("batch", [1, 5])
def test_the_analysis_is_within_a_tenth_of_a_real_run(name: str, batch: int) -> None:
    net = small_space(name)
    cost = peak_memory(net, batch)
    for architecture in random_architectures(net.graph, 6, seed=5):
        real = run_peak(extract(net, architecture).eval(), torch.zeros(batch, *net.input_shape))
        assert cost(architecture) == pytest.approx(real, rel=0.1)


def test_a_real_run_counts_what_it_allocates() -> None:
    """A linear layer and a copy: 4 · (7 + 7) bytes for one example beside weights and input."""
    module = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
    expected = 4 * (5 * 7 + 7) + 4 * 5 + 4 * (7 + 7)
    assert state_bytes(module) == 4 * (5 * 7 + 7)
    assert run_peak(module.eval(), torch.zeros(1, 5)) == expected


def test_the_smallest_is_that_of_all_architectures() -> None:
    net = resnet_fabric(width=1, channels=3, groups=3, classes=3, input_shape=(2, 8, 8))
    cost = peak_memory(net)
    gates = torch.tensor(list(itertools.product([False, True], repeat=len(net.graph.edges))))
    live = net.graph.live(gates)
    assert cost(cost.smallest()) == float(cost.evaluate(live[live.any(1)].unique(dim=0)).min())


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Flatten()])
def test_a_module_that_gives_back_its_input_keeps_that_alive(activation: nn.Module) -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("c", "y", "z"), Edge("d", "x", "z")])
    modules = {name: nn.Linear(50, 50) for name in "abcd"}
    net = SuperNetwork(graph, modules, input_shape=(50,), activation=activation)
    assert peak_memory(net, 3)(graph.full) == run_peak(extract(net, graph.full).eval(), torch.zeros(3, 50))


def test_evidence_is_the_larger_of_both_and_the_environment_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    net = small_space("resnet-fabric")
    before = dict(os.environ)
    meter = bind("peak_memory(batch=2)", net)
    evidence = meter.evidence(net.graph.full)
    assert meter.cost.measured
    assert (meter.unit, meter.name) == ("B", "peak_memory(batch=2)")
    assert evidence.upper_bound == max(evidence.how["analysis"], evidence.how["real_run"])
    assert meter.cost.refresh(net.graph.full.gates()[None])["error"] < 0.1
    assert dict(os.environ) == before
    assert capfd.readouterr().err == ""


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(UserError, match="batch=0"):
        bind("peak_memory(0)", small_space("resnet-fabric"))
