"""`steps` against the scan of the definition, written out slowly, on random graphs and architectures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from budgetnet.costs import bind, steps
from budgetnet.costs.steps import ALLOCATIONS
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES
from tests.random_graphs import count_calls, examples, graphs, random_gates, small_space

Unit = Hashable


class Units:
    """Stem, edges, sums and head as a graph of units."""

    def __init__(self, net: SuperNetwork) -> None:
        graph = net.graph
        self.cost: dict[Unit, int] = {"stem": is_work(net.stem), "head": is_work(net.head)}
        self.after: dict[Unit, list[Unit]] = {"stem": [], "head": []}
        self.cost |= {("sum", node): 1 for node in graph.nodes if node != graph.source}
        self.after |= {("sum", node): [] for node in graph.nodes if node != graph.source}
        for edge, module in zip(graph.edges, net.edge_modules, strict=True):
            self.cost[edge] = is_work(module)
            self.after[edge] = [("sum", edge.target)]
            self.after["stem" if edge.source == graph.source else ("sum", edge.source)].append(edge)
        self.after["sum", graph.sink].append("head")

    def depth_first(self) -> list[Unit]:
        """Reverse post-order, the last-inserted successor first."""
        finished: list[Unit] = []
        seen: set[Unit] = set()

        def visit(unit: Unit) -> None:
            seen.add(unit)
            for follower in reversed(self.after[unit]):
                if follower not in seen:
                    visit(follower)
            finished.append(unit)

        visit("stem")
        return finished[::-1]

    def alive(self, architecture: Architecture) -> set[Unit]:
        live = list(architecture.live())
        return {"stem", "head", *live, *(("sum", edge.target) for edge in live)}

    def longest(self, unit: Unit, alive: set[Unit]) -> int:
        """The longest remaining path in unit cost, own cost included."""
        return self.cost[unit] + max((self.longest(u, alive) for u in self.after[unit] if u in alive), default=0)


def is_work(module: nn.Module) -> int:
    return int(type(module) is not nn.Identity)


def scan(units: Units, alive: set[Unit], machines: int, allocation: str) -> int:
    """The loop of the definition."""
    remaining = [unit for unit in units.depth_first() if unit in alive]
    if allocation == "critical-path":
        remaining.sort(key=lambda unit: -units.longest(unit, alive))
    before: dict[Unit, set[Unit]] = {unit: {u for u in alive if unit in units.after[u]} for unit in alive}
    done: set[Unit] = set()
    ticks = 0
    while remaining:
        started: list[Unit] = []
        busy = 0
        for unit in remaining:
            if busy == machines:
                break
            if before[unit] <= done:
                started.append(unit)
                busy += units.cost[unit]
        done |= set(started)
        remaining = [unit for unit in remaining if unit not in done]
        ticks += busy > 0
    return ticks


@st.composite
def networks(draw: st.DrawFn) -> SuperNetwork:
    """Work and identity on the edges of a random graph, with or without work in the stem and the head."""
    graph = draw(graphs(max_nodes=7, max_edges=18))

    def module() -> nn.Module:
        return nn.ReLU() if draw(st.booleans()) else nn.Identity()

    modules = {edge.name: module() for edge in graph.edges}
    return SuperNetwork(graph, modules, input_shape=(1,), stem=module(), head=module())


def assert_as_defined(net: SuperNetwork, architectures: list[Architecture], machines: tuple[int, ...]) -> None:
    units = Units(net)
    for allocation, n in itertools.product(ALLOCATIONS, machines):
        cost = steps(net, n, allocation)
        for architecture in architectures:
            alive = units.alive(architecture)
            found = cost(architecture)
            assert found == scan(units, alive, n, allocation), (allocation, n)
            assert found >= units.longest("stem", alive)
            assert found >= math.ceil(sum(units.cost[unit] for unit in alive) / n)


@given(networks(), st.integers(0, 2**31))
@examples(120)
def test_steps_are_those_of_the_definition_on_random_graphs(net: SuperNetwork, seed: int) -> None:
    architectures = [net.graph.architecture(row) for row in random_gates(net.graph, 3, seed)]
    assert_as_defined(net, architectures, (1, 2, 3, 50))


@pytest.mark.parametrize("name", SPACES)
def test_steps_are_those_of_the_definition_in_every_space(name: str) -> None:
    net = small_space(name)
    assert_as_defined(net, [net.graph.architecture(row) for row in random_gates(net.graph, 4, 5)], (1, 2, 4))


@given(networks(), st.sampled_from(ALLOCATIONS), st.integers(1, 4), st.integers(0, 2**31))
@examples(60)
def test_a_schedule_can_be_run(net: SuperNetwork, allocation: str, machines: int, seed: int) -> None:
    graph, cost = net.graph, steps(net, machines, allocation)
    live = graph.live(random_gates(graph, 1, seed))
    (schedule,) = cost.schedules(live)
    nodes = len(graph.edges)
    work = [start for start, c in zip(schedule.starts, cost.costs, strict=True) if start and c]
    assert all(work.count(tick) <= machines for tick in work)
    assert sorted(set(work)) == list(range(1, schedule.ticks + 1))
    for i, alive in enumerate(live[0].tolist()):
        assert bool(schedule.starts[i]) == alive
        if alive:
            source, target = nodes + graph.sources[i], nodes + graph.targets[i]
            assert schedule.starts[source] + cost.costs[source] <= schedule.starts[i]
            assert schedule.starts[i] + cost.costs[i] <= schedule.starts[target]
    assert schedule.starts[nodes + len(graph.nodes) - 1] + 1 <= schedule.starts[-1]


@given(networks(), st.integers(0, 2**31))
@examples(40)
def test_one_machine_takes_as_many_ticks_as_there_are_units(net: SuperNetwork, seed: int) -> None:
    units = Units(net)
    for row in random_gates(net.graph, 3, seed):
        architecture = net.graph.architecture(row)
        total = sum(units.cost[unit] for unit in units.alive(architecture))
        assert {steps(net, 1, allocation)(architecture) for allocation in ALLOCATIONS} == {total}


def test_dead_units_take_no_tick() -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")])
    modules = {"a": nn.ReLU(), "b": nn.ReLU(), "skip": nn.Identity()}
    net = SuperNetwork(graph, modules, input_shape=(1,), stem=nn.ReLU(), head=nn.ReLU())
    cost = steps(net, 1)
    assert cost(graph.full) == 6
    assert cost(Architecture(graph, frozenset({"a", "skip"}))) == cost(Architecture(graph, frozenset({"skip"}))) == 3


def test_a_free_unit_still_makes_its_successors_wait_for_the_next_scan() -> None:
    graph = Graph([Edge("free", "x", "y"), Edge("work", "x", "z"), Edge("end", "y", "z")])
    modules = {"free": nn.Identity(), "work": nn.ReLU(), "end": nn.ReLU()}
    net = SuperNetwork(graph, modules, input_shape=(1,), stem=nn.ReLU(), head=nn.ReLU())
    # stem | work, free | sum y | end | sum z | head: without the wait, the sum at y would join the second tick
    assert steps(net, 9)(graph.full) == 6


def test_a_network_that_costs_nothing_but_sums() -> None:
    graph = Graph([Edge("a", "x", "y")])
    net = SuperNetwork(graph, {"a": nn.Identity()}, input_shape=(1,))
    assert steps(net, 3)(graph.full) == 1


def test_long_chains_do_not_exhaust_the_stack() -> None:
    graph = Graph(Edge(f"e{a}", f"n{a}", f"n{b}") for a, b in itertools.pairwise(range(3001)))
    net = SuperNetwork(graph, {edge.name: nn.Identity() for edge in graph.edges}, input_shape=(1,))
    assert steps(net, 2, "dfs")(graph.full) == steps(net, 2)(graph.full) == 3000


@pytest.mark.parametrize("machines", [0, -1, True])
def test_fewer_than_one_machine_is_refused(machines: int) -> None:
    with pytest.raises(UserError, match=f"{machines} machines.*1 machine or more"):
        steps(small_space("neural-fabric"), machines)


def test_an_unknown_allocation_is_refused() -> None:
    with pytest.raises(UserError, match="'bfs' does not exist; use critical-path or dfs"):
        steps(small_space("neural-fabric"), 2, "bfs")


def test_a_schedule_takes_work_in_proportion_to_its_units() -> None:
    net = small_space("resnet-fabric", width=6, channels=1)
    cost, live = steps(net, 4), net.graph.live(random_gates(net.graph, 8, 0))
    assert count_calls(lambda: cost.evaluate(live)) < 8 * 15 * len(cost.costs)


def test_a_schedule_is_made_once_per_architecture() -> None:
    net = small_space("neural-fabric")
    meter, gates = bind("steps(4)", net), random_gates(net.graph, 32, 0)
    first = count_calls(lambda: meter.evaluate(gates))
    assert count_calls(lambda: meter.evaluate(gates)) < first / 10
    assert torch.equal(meter.evaluate(gates), meter.evaluate(gates.flip(0)).flip(0))
