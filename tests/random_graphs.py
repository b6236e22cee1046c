"""Random graphs, super networks and architectures, and slow literal versions of what the package does fast."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES

VECTOR, IMAGE = (3,), (2, 4, 4)

SMALL_SPACES: dict[str, dict[str, Any]] = {
    "resnet-fabric": {"width": 3, "channels": 4, "input_shape": (3, 8, 8)},
    "neural-fabric": {"width": 3, "scales": 4, "filters": 4, "input_shape": (3, 8, 8)},
}
"""Arguments that make a registered space small; one that is not here is tested at its defaults."""


def small_space(name: str, **changes: Any) -> SuperNetwork:
    """A registered space, small."""
    return SPACES[name](**{**SMALL_SPACES.get(name, {}), **changes})


def examples(count: int) -> settings:
    """The same examples in every run, and no deadline: the machine may be busy."""
    return settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


def generator(seed: int) -> torch.Generator:
    """Random numbers that no other test can move."""
    return torch.Generator().manual_seed(seed)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 6, max_edges: int = 14) -> Graph:
    """A DAG with one source and one sink, parallel edges, and edges inserted in any order."""
    count = draw(st.integers(2, max_nodes))
    pairs = [(draw(st.integers(0, node - 1)), node) for node in range(1, count)]
    for node in range(count - 1):
        if all(source != node for source, _ in pairs):
            pairs.append((node, draw(st.integers(node + 1, count - 1))))
    possible = list(itertools.combinations(range(count), 2))
    pairs += draw(st.lists(st.sampled_from(possible), max_size=max(max_edges - len(pairs), 0)))
    names = draw(st.permutations([f"n{i}" for i in range(count)]))
    return Graph(Edge(f"e{i}", names[a], names[b]) for i, (a, b) in enumerate(draw(st.permutations(pairs))))


@st.composite
def vector_networks(draw: st.DrawFn) -> SuperNetwork:
    """Linear edges with and without batch norm, and identities where the width allows."""
    graph = draw(graphs())
    widths = {node: draw(st.sampled_from([3, 3, 5])) for node in graph.nodes}

    def edge_module(edge: Edge) -> nn.Module:
        inputs, outputs = widths[edge.source], widths[edge.target]
        kinds: list[Callable[[], nn.Module]] = [
            lambda: nn.Linear(inputs, outputs),
            lambda: nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs)),
            lambda: nn.Sequential(nn.BatchNorm1d(inputs), nn.Tanh(), nn.Linear(inputs, outputs)),
            *([nn.Identity, nn.Identity] if inputs == outputs else []),
        ]
        return draw(st.sampled_from(kinds))()

    start = widths[graph.source]
    no_stem = (start,) == VECTOR and draw(st.booleans())
    stem = None if no_stem else nn.Sequential(nn.Linear(VECTOR[0], start), nn.BatchNorm1d(start))
    return _assemble(draw, graph, edge_module, VECTOR, stem, nn.Linear(widths[graph.sink], 2))


@st.composite
def image_networks(draw: st.DrawFn) -> SuperNetwork:
    """Convolutions with batch norm between nodes of different sides and channels, down to 1×1, and identities."""
    graph = draw(graphs(max_nodes=5, max_edges=10))
    shapes = {node: (draw(st.sampled_from([2, 2, 3])), draw(st.sampled_from([1, 2, 4]))) for node in graph.nodes}

    def edge_module(edge: Edge) -> nn.Module:
        (inputs, before), (outputs, after) = shapes[edge.source], shapes[edge.target]
        if (inputs, before) == (outputs, after) and draw(st.booleans()):
            return nn.Identity()
        resize: nn.Module = nn.Upsample(size=(after, after)) if after > before else nn.AdaptiveAvgPool2d(after)
        layers = [resize, nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs)]
        return nn.Sequential(*(layers if after != before else layers[1:]))

    channels, side = shapes[graph.source]
    stem = nn.Sequential(nn.AdaptiveAvgPool2d(side), nn.Conv2d(IMAGE[0], channels, 1), nn.BatchNorm2d(channels))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(shapes[graph.sink][0], 2))
    return _assemble(draw, graph, edge_module, IMAGE, stem, head)


def supernets() -> st.SearchStrategy[SuperNetwork]:
    """A random super network, on vectors or on images."""
    return vector_networks() | image_networks()


def _assemble(
    draw: st.DrawFn,
    graph: Graph,
    edge_module: Callable[[Edge], nn.Module],
    input_shape: tuple[int, ...],
    stem: nn.Module | None,
    head: nn.Module,
) -> SuperNetwork:
    modules = {edge.name: edge_module(edge) for edge in graph.edges}
    activation = draw(st.sampled_from([None, nn.ReLU(), nn.Tanh()]))
    net = SuperNetwork(graph, modules, input_shape=input_shape, stem=stem, head=head, activation=activation)
    return randomise(net, draw(st.integers(0, 2**31)))


def randomise(net: SuperNetwork, seed: int) -> SuperNetwork:
    """Random weights, and batch norms that shift and scale, so that a leak from a dead edge would show."""
    source = generator(seed)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=source) * (0.5 if parameter.dim() > 1 else 1.0)
    for name, buffer in net.named_buffers():
        if name.endswith("running_mean"):
            buffer.copy_(torch.randn(buffer.shape, generator=source))
        elif name.endswith("running_var"):
            buffer.copy_(torch.rand(buffer.shape, generator=source) + 0.5)
    return net


def random_gates(graph: Graph, count: int, seed: int, connected: bool = True) -> Tensor:
    """Gates (count × edges) at densities from sparse to dense, with a random walk from source to sink if connected."""
    source = generator(seed)
    gates = torch.rand(count, len(graph.edges), generator=source) < torch.rand(count, 1, generator=source)
    for row in gates if connected else ():
        node = 0
        while graph.outgoing[node]:
            edges = graph.outgoing[node]
            edge = edges[int(torch.randint(len(edges), (), generator=source))]
            row[edge] = True
            node = graph.targets[edge]
    return gates


def every_gate_row(graph: Graph) -> Tensor:
    """All subsets of the edges (2^edges × edges)."""
    return torch.tensor(list(itertools.product([False, True], repeat=len(graph.edges))))


def paths(graph: Graph) -> Iterator[frozenset[str]]:
    """Every source→sink path as the set of its edges, by walking."""

    def walk(node: str, taken: frozenset[str]) -> Iterator[frozenset[str]]:
        if node == graph.sink:
            yield taken
        for edge in graph.edges:
            if edge.source == node:
                yield from walk(edge.target, taken | {edge.name})

    return walk(graph.source, frozenset())


def live_names(architecture: Architecture) -> frozenset[str]:
    """The definition: the union of all kept paths."""
    return frozenset().union(*(path for path in paths(architecture.graph) if path <= architecture.kept))


def literal_forward(net: SuperNetwork, x: Tensor, architecture: Architecture) -> Tensor:
    """`l_i = act_i(Σ_k h_{k,i} f_{k,i}(l_k))` written down as it stands, for one connected architecture."""
    live = live_names(architecture)
    values = {net.graph.source: net.stem(x)}
    for number, node in enumerate(net.graph.nodes):
        terms = [
            net.edge_modules[i](values[edge.source])
            for i, edge in enumerate(net.graph.edges)
            if edge.target == node and edge.name in live
        ]
        if terms:
            values[node] = net.activations[number](torch.stack(terms).sum(0))
    return net.head(values[net.graph.sink])


def inputs(net: SuperNetwork, count: int, seed: int = 0) -> Tensor:
    """Random examples."""
    return torch.randn(count, *net.input_shape, generator=generator(seed))


def chi_squared_p(observed: Tensor, expected: Tensor) -> float:
    """The p-value of counts under expected counts; cells that expect fewer than 5 are put together."""
    small = expected < 5
    if bool(small.any()):
        observed = torch.cat([observed[~small], observed[small].sum()[None]])
        expected = torch.cat([expected[~small], expected[small].sum()[None]])
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2).double(), statistic.double() / 2))


def count_calls(function: Callable[[], object]) -> int:
    """Calls of Python and built-in functions: a measure of work that does not depend on the machine."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
