"""The gated super network: exactness, gradients, batch norm, several architectures per batch, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from budgetnet.errors import UserError
from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES
from tests.random_graphs import (
    count_calls,
    examples,
    image_networks,
    inputs,
    literal_forward,
    random_gates,
    randomise,
    small_space,
    supernets,
    vector_networks,
)

SMALL = {
    **{name: partial(small_space, name) for name in SPACES},
    "segmentation": partial(small_space, "neural-fabric", task="segmentation", classes=3),
}

TRIANGLE = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("skip", "x", "z")])


def triangle(**changes: object) -> SuperNetwork:
    modules = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 3), "skip": nn.Identity()}
    arguments = {"input_shape": (3,), "modules": modules, **changes}
    return SuperNetwork(TRIANGLE, **arguments)  # type: ignore[arg-type]


def buffers(net: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in net.named_buffers()}


def assert_twin_agrees(net: SuperNetwork, architecture: Architecture, x: Tensor) -> None:
    """One architecture, gated and extracted: outputs in eval mode; outputs, gradients and statistics in training."""
    live = architecture.live()
    before = buffers(net)
    net.eval().zero_grad()
    twin = extract(net, live)
    assert close(net(x, architecture), twin(x))
    gated, plain = net.train()(x, architecture), twin.train()(x)
    assert close(gated, plain)
    gated.square().sum().backward()
    plain.square().sum().backward()
    parts = [net.stem, *(net.edge_modules[net.graph.index[edge.name]] for edge in by_node(live)), net.head]
    mine, theirs = nn.ModuleList(parts), [m for m in twin.children() if not isinstance(m, nn.ReLU | nn.Tanh)]
    assert close(gradients(mine), gradients(nn.ModuleList(theirs)))
    assert close(flat(mine.buffers()), flat(nn.ModuleList(theirs).buffers()))
    for i, edge in enumerate(net.graph.edges):
        if edge.name not in live:
            assert_untouched(net, i, before)
    net.load_state_dict(before, strict=False)


def by_node(architecture: Architecture) -> list[Edge]:
    """The order in which an extracted network computes its edges."""
    return sorted(architecture, key=lambda edge: architecture.graph.nodes.index(edge.target))


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(1), *(tensor.detach().flatten().double() for tensor in tensors)])


def gradients(module: nn.Module) -> Tensor:
    return flat(parameter.grad for parameter in module.parameters() if parameter.grad is not None)


def close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-7, atol=1e-7)


def assert_untouched(net: SuperNetwork, edge: int, before: dict[str, Tensor]) -> None:
    module, name = net.edge_modules[edge], net.graph.edges[edge].name
    assert all(p.grad is None or not p.grad.any() for p in module.parameters()), f"the dead edge {name} has a gradient"
    for key, buffer in module.named_buffers():
        assert torch.equal(buffer, before[f"edge_modules.{edge}.{key}"]), f"{key} of the dead edge {name} moved"


@pytest.mark.parametrize("space", SMALL)
def test_gated_and_extracted_agree_for_200_architectures_of_each_space(space: str) -> None:
    net = randomise(SMALL[space](), 1).double()
    for i, row in enumerate(random_gates(net.graph, 200, 2)):
        assert_twin_agrees(net, net.graph.architecture(row), inputs(net, 3, i).double())


@pytest.mark.parametrize("space", SMALL)
def test_gated_and_extracted_agree_in_single_precision(space: str) -> None:
    net = SMALL[space]()
    for i, row in enumerate(random_gates(net.graph, 10, 3)):
        architecture, x = net.graph.architecture(row), inputs(net, 4, i)
        for mode in (False, True):
            twin = extract(net.train(mode), architecture)
            torch.testing.assert_close(net(x, architecture), twin(x), rtol=1e-5, atol=1e-5)


@given(supernets(), st.integers(0, 2**31))
@examples(50)
def test_gated_and_extracted_agree_for_200_architectures_of_random_graphs(net: SuperNetwork, seed: int) -> None:
    x = inputs(net.double(), 5, seed).double()
    for row in random_gates(net.graph, 4, seed):
        architecture = net.graph.architecture(row)
        assert_twin_agrees(net, architecture, x)
        assert close(net.eval()(x, architecture), literal_forward(net, x, architecture))


def assert_groups_agree(net: SuperNetwork, gates: Tensor, batch: int, seed: int) -> None:
    """In eval mode each group is its own network, and gradients are the sum over the networks."""
    net.eval().double().zero_grad()
    x = inputs(net, batch, seed).double()
    group = group_of_rows(batch, len(gates))
    output = net(x, gates)
    output.square().sum().backward()
    together = dense_gradients(net)
    net.zero_grad()
    for g, row in enumerate(gates):
        architecture, mine = net.graph.architecture(row), output[group == g]
        if architecture.connected:
            assert close(mine, extract(net, architecture)(x[group == g]))
            net(x[group == g], architecture).square().sum().backward()
        else:
            assert not mine.any(), "an inconsistent group has logits"
    assert close(together, dense_gradients(net))


def dense_gradients(net: nn.Module) -> Tensor:
    return flat(p.new_zeros(p.shape) if p.grad is None else p.grad for p in net.parameters())


@pytest.mark.parametrize("space", SMALL)
@pytest.mark.parametrize(("groups", "batch"), [(2, 2), (3, 8), (8, 8), (5, 13)])
def test_each_group_is_its_own_network_in_each_space(space: str, groups: int, batch: int) -> None:
    net = randomise(SMALL[space](), 3)
    for seed in range(3):
        gates = random_gates(net.graph, groups, seed)
        gates[seed % groups] = random_gates(net.graph, 1, seed, connected=False)[0]
        assert_groups_agree(net, gates, batch, seed)


@given(supernets(), st.integers(1, 6), st.integers(0, 5), st.booleans(), st.integers(0, 2**31))
@examples(40)
def test_each_group_is_its_own_network_on_random_graphs(
    net: SuperNetwork, groups: int, more: int, connected: bool, seed: int
) -> None:
    assert_groups_agree(net, random_gates(net.graph, groups, seed, connected), groups + more, seed)


@given(supernets(), st.integers(0, 2**31))
@examples(30)
def test_edges_that_no_group_keeps_alive_do_not_move_in_training(net: SuperNetwork, seed: int) -> None:
    gates = random_gates(net.graph, 4, seed, connected=False)
    net.train()
    before = buffers(net)
    output = net(inputs(net, 8, seed), gates)
    output.square().sum().backward()
    live = net.graph.live(gates).any(0)
    for edge in (~live).nonzero().flatten().tolist():
        assert_untouched(net, edge, before)


def test_inconsistent_groups_give_zeros_and_touch_nothing() -> None:
    net = triangle(head=nn.Linear(3, 2), stem=nn.BatchNorm1d(3)).train()
    before = buffers(net)
    gates = torch.tensor([[True, False, False], [False, False, False]])
    output = net(torch.randn(4, 3), gates)
    assert output.shape == (4, 2)
    assert not output.any()
    output.sum().backward()
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(b, before[name]) for name, b in net.named_buffers())


def test_the_zeros_of_inconsistent_groups_have_the_type_of_other_outputs() -> None:
    net = triangle(head=nn.Linear(3, 2)).double()
    x = torch.randn(2, 3).double()
    assert net(x, torch.zeros(3)).dtype == net(x).dtype == torch.float64


def test_statistics_ignore_examples_of_groups_that_dropped_the_edge() -> None:
    net = triangle(modules={"a": nn.BatchNorm1d(3), "b": nn.Identity(), "skip": nn.Identity()}).train()
    x = torch.randn(6, 3)
    net(x, torch.tensor([[True, True, False], [False, True, True], [True, False, True]]))
    torch.testing.assert_close(net.edge_modules[0].running_mean, 0.1 * x[:2].mean(0))


def one_per_example(training: bool) -> tuple[SuperNetwork, Tensor, Tensor]:
    modules = {
        "a": nn.Sequential(nn.Conv2d(2, 2, 3, 2, padding=1), nn.BatchNorm2d(2)),
        "b": nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)),
        "skip": nn.Sequential(nn.Conv2d(2, 2, 3, 2, padding=1), nn.BatchNorm2d(2)),
    }
    head = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Flatten())
    net = randomise(SuperNetwork(TRIANGLE, modules, input_shape=(2, 2, 2), head=head), 5)
    return net.train(training), inputs(net, 3, 1), torch.tensor([[1, 1, 0], [0, 0, 1], [0, 0, 0]]).bool()


def test_a_single_value_per_channel_uses_running_statistics_and_updates_nothing() -> None:
    net, x, gates = one_per_example(training=True)
    before = buffers(net)
    output = net(x, gates)
    norms = [net.edge_modules[i][1] for i in range(3)]
    assert all(norm.training for norm in norms), "batch norm must be back in training mode"
    for i in range(3):
        for name, buffer in net.edge_modules[i].named_buffers():
            assert torch.equal(buffer, before[f"edge_modules.{i}.{name}"])
    hidden = net.eval().edge_modules[1](net.edge_modules[0](x[:1])), net.edge_modules[2](x[1:2])
    head = net.head.train()(torch.cat(hidden))
    torch.testing.assert_close(output[:2], head)
    assert not output[2].any()


def test_one_example_with_several_values_per_channel_still_has_statistics() -> None:
    norm = nn.BatchNorm2d(2)
    graph = Graph([Edge("a", "x", "y"), Edge("b", "x", "y")])
    net = SuperNetwork(graph, {"a": norm, "b": nn.Identity()}, input_shape=(2, 2, 2)).train()
    x = torch.randn(2, 2, 2, 2)
    net(x, torch.tensor([[True, False], [False, True]]))
    torch.testing.assert_close(norm.running_mean, 0.1 * x[0].mean((1, 2)))
    assert int(norm.num_batches_tracked) == 1


def test_frozen_batch_norm_stays_frozen() -> None:
    net, x, gates = one_per_example(training=True)
    net.edge_modules[0][1].eval()
    net(x, gates)
    assert not net.edge_modules[0][1].training


def test_no_hook_is_left_behind_when_an_edge_raises() -> None:
    net, x, gates = one_per_example(training=True)
    norm = net.edge_modules[0][1]
    norm.register_forward_hook(lambda *_: (_ for _ in ()).throw(RuntimeError("stop")))
    with pytest.raises(RuntimeError, match="stop"):
        net(x, gates)
    assert norm.training
    assert not norm._forward_pre_hooks


@pytest.mark.parametrize("space", SMALL)
def test_one_architecture_per_example_trains(space: str) -> None:
    net = SMALL[space]().train()
    net(inputs(net, 6), random_gates(net.graph, 6, 4)).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
    assert all(torch.isfinite(b).all() for b in net.buffers())


@given(vector_networks(), st.integers(0, 2**31))
@examples(25)
def test_each_live_edge_runs_once_on_the_examples_that_keep_it(net: SuperNetwork, seed: int) -> None:
    gates = random_gates(net.graph, 4, seed)
    ran: list[tuple[int, int]] = []

    def note(number: int) -> Callable[..., None]:
        return lambda _module, arguments: ran.append((number, len(arguments[0])))

    for i, module in enumerate(net.edge_modules):
        module.register_forward_pre_hook(note(i))
    net.eval()(inputs(net, 8, seed), gates)
    live = net.graph.live(gates)
    expected = [(e, 2 * int(live[:, e].sum())) for e in range(len(net.graph.edges)) if live[:, e].any()]
    assert sorted(ran) == expected


def test_a_second_forward_of_the_same_gates_plans_nothing() -> None:
    net = SMALL["resnet-fabric"]().eval()
    x, gates = inputs(net, 4), random_gates(net.graph, 4, 8)
    first = count_calls(lambda: net.plan(gates, 4))
    assert count_calls(lambda: net.plan(gates, 4)) < first / 5
    assert torch.equal(net(x, gates), net(x, gates))


@given(image_networks(), st.integers(0, 2**31))
@examples(15)
def test_forward_does_not_write_to_its_input(net: SuperNetwork, seed: int) -> None:
    x = inputs(net, 4, seed)
    before = x.clone()
    net.train()(x, random_gates(net.graph, 2, seed))
    assert torch.equal(x, before)


def test_mixed_precision_sums_are_those_of_the_extracted_network() -> None:
    net = randomise(triangle(modules={"a": nn.Linear(3, 3), "b": nn.Identity(), "skip": nn.Identity()}), 0).eval()
    gates = torch.tensor([[1, 1, 1], [0, 0, 1], [1, 1, 0], [1, 1, 1]]).bool()
    x = inputs(net, 4)
    with torch.autocast("cpu", torch.bfloat16):
        for order in ([0, 1, 2, 3], [1, 0, 2, 3], [2, 1, 3, 0], [2, 2, 0, 2]):
            output = net(x, gates[order])
            for i, row in enumerate(gates[order]):
                twin = extract(net, net.graph.architecture(row))
                torch.testing.assert_close(output[i : i + 1].float(), twin(x[i : i + 1]).float(), rtol=0.01, atol=0.01)


def test_every_way_to_say_gates_means_the_same() -> None:
    net = triangle()
    x = torch.randn(2, 3)
    kept = Architecture(TRIANGLE, frozenset({"skip"}))
    for gates in (kept, kept.gates(), kept.gates()[None], kept.gates().float(), kept.gates().int()):
        torch.testing.assert_close(net(x, gates), x)
    assert torch.equal(net(x), net(x, TRIANGLE.full))


def test_named_architectures() -> None:
    spine = Architecture(TRIANGLE, frozenset({"a", "b"}))
    net = triangle(named={"spine": spine}, name="mine")
    assert net.architecture("spine") == spine
    assert net.architecture("full") == TRIANGLE.full
    with pytest.raises(UserError, match="mine has no architecture named 'big'; it has full, spine"):
        net.architecture("big")


def test_activations_are_copied_to_nodes_or_given_by_node() -> None:
    shared = triangle(activation=nn.PReLU())
    assert len(set(shared.parameters())) == 4 + 2
    chosen = triangle(activation={"z": nn.Tanh()})
    assert [type(a) for a in chosen.activations] == [nn.Identity, nn.Identity, nn.Tanh]


def test_shapes_of_the_dry_run() -> None:
    net = triangle(head=nn.Sequential(nn.Unflatten(1, (3, 1)), nn.Flatten(2)), activation={"y": nn.Linear(4, 4)})
    assert net.shapes.sums == net.shapes.nodes == ((3,), (4,), (3,))
    assert net.shapes.output == (3, 1)


def test_the_dry_run_touches_neither_statistics_nor_random_numbers() -> None:
    norm = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    modules = {"a": norm, "b": nn.Identity(), "skip": nn.Identity()}
    state = torch.get_rng_state()
    SuperNetwork(TRIANGLE, modules, input_shape=(3,))
    assert torch.equal(torch.get_rng_state(), state)
    assert int(norm[1].num_batches_tracked) == 0
    assert norm[0].weight.device.type == "cpu"


def test_integer_inputs_go_through_an_embedding() -> None:
    net = triangle(stem=nn.Sequential(nn.Embedding(7, 3), nn.Flatten()), input_shape=(1,), input_dtype=torch.int64)
    tokens = torch.tensor([[1], [6]])
    assert net(tokens).shape == (2, 3)
    assert net(tokens, torch.zeros(3)).dtype == torch.float32


class Pair(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, x


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(0)


MODULES = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 3), "skip": nn.Identity()}
WRITER = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 4))
SHARED = nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modules": {"a": nn.Identity(), "skip": nn.Identity()}}, ["edge 'b' has no module"]),
        ({"modules": {**MODULES, "extra": nn.Identity()}}, ["'extra'", "not an edge"]),
        ({"modules": {"a": SHARED, "b": SHARED, "skip": nn.Identity()}}, ["'a'", "'b'", "share"]),
        ({"modules": {**MODULES, "b": nn.Linear(5, 3)}}, ["edge 'b'", "node 'y'", "4"]),
        ({"modules": {**MODULES, "b": nn.Linear(4, 5)}}, ["edge 'skip'", "node 'z'", "'b'", "3", "5", "summed"]),
        ({"modules": {**MODULES, "b": Pair()}}, ["edge 'b'", "one tensor", "tuple"]),
        ({"modules": {**MODULES, "a": Pooled()}}, ["edge 'a'", "row per example"]),
        ({"modules": {**MODULES, "a": WRITER}}, ["edge 'a'", "inplace=False"]),
        ({"activation": nn.ReLU(inplace=True)}, ["activation of node 'y'", "inplace=False"]),
        ({"modules": {**MODULES, "a": torch.relu}}, ["edge 'a'", "nn.Module", "nn.ReLU()"]),
        ({"activation": torch.relu}, ["activation of node 'y'", "nn.Module"]),
        ({"activation": {"x": nn.ReLU()}}, ["'x'", "not a node with incoming edges"]),
        ({"activation": {"y": nn.Linear(9, 9)}}, ["activation of node 'y'", "4"]),
        ({"stem": nn.Linear(8, 3)}, ["the stem", "the input", "3"]),
        ({"head": nn.Linear(8, 3)}, ["the head", "node 'z'", "3"]),
    ],
)
def test_a_super_network_that_does_not_fit_is_refused_by_name(changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        triangle(**changes)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_an_activation_in_place_after_a_lone_skip_would_have_written_to_its_source() -> None:
    graph = Graph([Edge("skip", "x", "y"), Edge("side", "x", "z"), Edge("end", "y", "z")])
    modules = {name: nn.Identity() for name in ("skip", "side", "end")}
    with pytest.raises(UserError, match="'y'"):
        SuperNetwork(graph, modules, input_shape=(3,), activation={"y": nn.ReLU(inplace=True)})


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        (torch.ones(2, 4), "groups × 3 edges, not \\(2, 4\\)"),
        (torch.ones(1, 1, 3), "groups × 3 edges"),
        (torch.ones(3, 3), "3 architectures cannot share 2 examples"),
        (torch.ones(0, 3), "0 architectures cannot share 2 examples"),
        (Graph([Edge("a", "x", "y")]).full, "the architecture is of Graph"),
    ],
)
def test_gates_that_do_not_fit_are_refused(gates: Tensor | Architecture, words: str) -> None:
    with pytest.raises(UserError, match=words):
        triangle()(torch.randn(2, 3), gates)
