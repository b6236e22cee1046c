"""What makes the executor fast, without a clock: calls of modules, rows, bytes copied, operations, Python calls.

Nothing here looks inside the executor: it is watched through hooks on the edges' modules and torch's dispatcher.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import neural_fabric, resnet_fabric
from tests.random_graphs import count_calls, inputs, live_names, random_gates, randomise

SPACES: dict[str, Callable[[], SuperNetwork]] = {
    "resnet-fabric": lambda: resnet_fabric(width=2, channels=2, input_shape=(3, 8, 8)),
    "neural-fabric": lambda: neural_fabric(width=3, scales=3, filters=2, input_shape=(3, 8, 8)),
}
TAKES = {"index_select", "index", "gather", "take", "masked_select", "cat", "stack"}
"""Operations that read some rows of a tensor into a new one."""


@pytest.fixture(params=SPACES)
def net(request: pytest.FixtureRequest) -> SuperNetwork:
    return randomise(SPACES[request.param](), 0).train()


class Operations(TorchDispatchMode):
    """Counts the operations that torch is asked for, and the bytes of values (not of indices) that takes make."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.taken: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::").partition(".")[0]
        self.count += 1
        if name in TAKES and output.is_floating_point():
            self.taken[name] += output.numel() * output.element_size()
        return output


@contextmanager
def watched(net: SuperNetwork) -> Iterator[dict[str, list[int]]]:
    """The number of rows of every call of an edge's module."""
    rows: dict[str, list[int]] = defaultdict(list)

    def note(name: str) -> Callable[..., None]:
        return lambda module, given, output: rows[name].append(len(given[0]))

    pairs = zip(net.graph.edges, net.edge_modules, strict=True)
    handles = [module.register_forward_hook(note(edge.name)) for edge, module in pairs]
    try:
        yield rows
    finally:
        for handle in handles:
            handle.remove()


def groups_of_edges(net: SuperNetwork, gates: Tensor) -> dict[str, list[int]]:
    """The groups in which each edge is live, by the definition; edges that are live in none are left out."""
    found: dict[str, list[int]] = defaultdict(list)
    for group, row in enumerate(gates):
        for name in live_names(net.graph.architecture(row)):
            found[name].append(group)
    return found


def nested_gates(net: SuperNetwork, groups: int, seed: int) -> Tensor:
    """Each group keeps a part of what the one before it keeps: the groups of every edge are neighbours."""
    generator = torch.Generator().manual_seed(seed)
    level = torch.randint(1, groups + 1, (len(net.graph.edges),), generator=generator)
    level[net.graph.shortest_path(torch.rand(len(level), generator=generator).tolist())] = groups
    return torch.arange(groups)[:, None] < level


@pytest.mark.parametrize(("groups", "batch"), [(1, 4), (3, 7), (8, 16), (16, 16)])
@pytest.mark.parametrize("seed", range(4))
def test_each_live_edge_is_called_once_on_the_examples_that_keep_it(
    net: SuperNetwork, groups: int, batch: int, seed: int
) -> None:
    gates = random_gates(net.graph, groups, seed, connected=seed % 2 == 0)
    with watched(net) as rows:
        net(inputs(net, batch), gates)
    sizes = torch.bincount(group_of_rows(batch, groups), minlength=groups).tolist()
    expected = {name: [sum(sizes[g] for g in kept)] for name, kept in groups_of_edges(net, gates).items()}
    # an identity may be passed by: there is nothing to compute
    free = {e.name for e, m in zip(net.graph.edges, net.edge_modules, strict=True) if isinstance(m, nn.Identity)}
    assert {name: found for name, found in rows.items() if name not in free} == {
        name: found for name, found in expected.items() if name not in free
    }
    assert all(expected.get(name) == rows[name] for name in free & set(rows))


def takes(net: SuperNetwork, x: Tensor, gates: Tensor | None) -> Counter[str]:
    with Operations() as seen:
        net(x, gates)
    return seen.taken


def test_nothing_is_copied_where_all_groups_keep_every_edge(net: SuperNetwork) -> None:
    x = inputs(net, 16)
    assert takes(net, x, None) == {}
    assert takes(net, x, torch.ones(8, len(net.graph.edges), dtype=torch.bool)) == {}
    same = random_gates(net.graph, 1, 3).expand(8, -1)
    assert takes(net, x, same) == {}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_copied_where_the_groups_of_an_edge_are_neighbours(net: SuperNetwork, seed: int) -> None:
    assert takes(net, inputs(net, 16), nested_gates(net, 8, seed)) == {}


@pytest.mark.parametrize("seed", range(4))
def test_elsewhere_an_edge_copies_its_own_rows_at_most(net: SuperNetwork, seed: int) -> None:
    gates, per_group = random_gates(net.graph, 8, seed), 2
    allowed = 0
    kept = groups_of_edges(net, gates)
    for edge, source in zip(net.graph.edges, net.graph.sources, strict=True):
        shape = net.shapes.nodes[source]
        allowed += 4 * torch.Size(shape).numel() * per_group * len(kept.get(edge.name, ()))
    taken = takes(net, inputs(net, 8 * per_group), gates)
    assert 0 < sum(taken.values()) <= allowed, "random groups are not neighbours: something is to be copied"


def test_equal_gates_are_planned_once(net: SuperNetwork) -> None:
    gates = random_gates(net.graph, 4, 5)
    assert net.plan(gates, 8) is net.plan(gates.clone(), 8)
    assert net.plan(gates, 8) is not net.plan(random_gates(net.graph, 4, 6), 8)
    x = inputs(net, 8)
    fresh = count_calls(lambda: net(x, random_gates(net.graph, 4, 7)))
    again = count_calls(lambda: net(x, random_gates(net.graph, 4, 7)))
    assert again < fresh


def ladder(edges: int) -> SuperNetwork:
    """A chain with skips over one node, every edge of equal work."""
    pairs = [(i, i + 1) for i in range(edges // 2 + 1)] + [(i, i + 2) for i in range(edges // 2 - 1)]
    graph = Graph(Edge(f"{a}-{b}", f"n{a}", f"n{b}") for a, b in sorted(pairs))
    modules = {edge.name: nn.Linear(2, 2) for edge in graph.edges}
    return SuperNetwork(graph, modules, input_shape=(2,), activation=nn.Tanh())


def half_of_the_skips(net: SuperNetwork, groups: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    chain = torch.tensor([b - a == 1 for a, b in zip(net.graph.sources, net.graph.targets, strict=True)])
    return (torch.rand(groups, len(chain), generator=generator) < 0.5) | chain


def test_operations_and_python_calls_grow_no_faster_than_the_live_edges() -> None:
    operations, calls = {}, {}
    for edges in (50, 500):
        net = ladder(edges).train()
        gates = half_of_the_skips(net, 8)
        live = int(net.graph.live(gates).any(0).sum())
        x = inputs(net, 16)
        net(x, gates[:4])
        calls[edges] = count_calls(lambda net=net, x=x, gates=gates: net(x, gates)) / live  # type: ignore[misc]
        with Operations() as seen:
            net(x, gates).sum().backward()
        operations[edges] = seen.count / live
    assert operations[500] <= 1.1 * operations[50], operations
    assert calls[500] <= 1.1 * calls[50], calls
    assert operations[500] <= 25, "operations of an edge: take, compute and place, both ways"


def test_more_examples_are_no_more_python() -> None:
    net = ladder(50).train()
    one, other = half_of_the_skips(net, 8, 1), half_of_the_skips(net, 8, 2)
    few, many = inputs(net, 16), inputs(net, 256)
    net(few, half_of_the_skips(net, 8, 3))
    assert count_calls(lambda: net(many, one)) <= 1.05 * count_calls(lambda: net(few, other))


def test_one_architecture_per_example_is_hardly_more_python_than_eight_groups() -> None:
    net = ladder(50).train()
    x = inputs(net, 128)
    eight, each = half_of_the_skips(net, 8), half_of_the_skips(net, 128)
    assert net.graph.live(eight).any(0).sum() > 0.95 * len(net.graph.edges)
    net(x, eight[:4])
    assert count_calls(lambda: net(x, each)) <= 1.3 * count_calls(lambda: net(x, eight))
