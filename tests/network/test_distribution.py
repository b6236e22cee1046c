"""Γ against a tree that follows the definition: probabilities, gradients, frequencies and modes by enumeration."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Edge, Graph
from budgetnet.spaces import resnet_fabric
from tests.random_graphs import chi_squared_p, count_calls, every_gate_row, examples, generator, graphs, paths

SKIP = Graph([Edge("a", "x", "y"), Edge("b", "y", "z"), Edge("c", "y", "z"), Edge("d", "x", "z"), Edge("e", "x", "y")])
SMALL = st.integers(0, 2**31), graphs(max_nodes=4, max_edges=6)


def outcomes(graph: Graph, probabilities: Tensor) -> Iterator[tuple[frozenset[str], Tensor]]:
    """Every drawable H with P(H): edges in topological order of their source, drawn only where the input arrives."""
    order = sorted(graph.edges, key=lambda edge: graph.nodes.index(edge.source))

    def draw(position: int, arrived: frozenset[str], kept: frozenset[str], p: Tensor) -> Iterator:
        if position == len(order):
            yield kept, p
            return
        edge = order[position]
        if edge.source not in arrived:
            yield from draw(position + 1, arrived, kept, p)
            return
        on = probabilities[graph.index[edge.name]]
        yield from draw(position + 1, arrived | {edge.target}, kept | {edge.name}, p * on)
        yield from draw(position + 1, arrived, kept, p * (1 - on))

    return draw(0, frozenset({graph.source}), frozenset(), torch.ones((), dtype=torch.float64))


def distribution(graph: Graph, seed: int, spread: float = 1.5) -> EdgeDistribution:
    gamma = EdgeDistribution(graph).double()
    gamma.logits.data = torch.randn(len(graph.edges), generator=generator(seed), dtype=torch.float64) * spread
    return gamma


def rows(graph: Graph, kept: list[frozenset[str]]) -> Tensor:
    return torch.tensor([[edge.name in one for edge in graph.edges] for one in kept])


@given(*SMALL)
@examples(60)
def test_log_prob_is_that_of_the_sampling_tree(seed: int, graph: Graph) -> None:
    gamma = distribution(graph, seed)
    kept, p = zip(*outcomes(graph, torch.sigmoid(gamma.logits)), strict=True)
    torch.testing.assert_close(gamma.log_prob(rows(graph, list(kept))).exp(), torch.stack(p))
    assert len(set(kept)) == len(kept)
    assert float(torch.stack(p).detach().sum()) == pytest.approx(1)


@given(*SMALL)
@examples(60)
def test_the_score_function_is_the_gradient_of_the_expected_objective(seed: int, graph: Graph) -> None:
    gamma = distribution(graph, seed)
    kept, p = zip(*outcomes(graph, torch.sigmoid(gamma.logits)), strict=True)
    objective = torch.randn(len(kept), generator=generator(seed), dtype=torch.float64)
    (truth,) = torch.autograd.grad((torch.stack(p) * objective).sum(), gamma.logits)
    log_prob = gamma.log_prob(rows(graph, list(kept)))
    (score,) = torch.autograd.grad((log_prob * (log_prob.exp() * objective).detach()).sum(), gamma.logits)
    torch.testing.assert_close(score, truth)


@pytest.mark.parametrize("seed", range(6))
def test_sampled_frequencies_match_the_enumeration(seed: int) -> None:
    graph = SKIP if seed else Graph([Edge("a", "x", "y"), Edge("b", "x", "y"), Edge("c", "y", "z")])
    gamma = distribution(graph, seed)
    kept, p = zip(*outcomes(graph, gamma.probabilities), strict=True)
    index = {tuple(row): i for i, row in enumerate(rows(graph, list(kept)).tolist())}
    gates = gamma.sample(20_000, generator(seed)).gates.tolist()
    observed = torch.bincount(torch.tensor([index[tuple(row)] for row in gates]), minlength=len(index))
    assert chi_squared_p(observed.double(), torch.stack(p) * 20_000) > 1e-3


@pytest.mark.parametrize("place", [0, 5])
def test_each_stratified_architecture_follows_gamma_by_itself(place: int) -> None:
    gamma = distribution(SKIP, 3)
    kept, p = zip(*outcomes(SKIP, gamma.probabilities), strict=True)
    index = {tuple(row): i for i, row in enumerate(rows(SKIP, list(kept)).tolist())}
    source = generator(place)
    gates = torch.stack([gamma.sample(8, source, stratified=True).gates[place] for _ in range(4000)]).tolist()
    observed = torch.bincount(torch.tensor([index[tuple(row)] for row in gates]), minlength=len(index))
    assert chi_squared_p(observed.double(), torch.stack(p) * 4000) > 1e-3


@pytest.mark.parametrize("stratified", [True, False])
def test_architectures_that_are_to_connect_follow_gamma_given_that_they_do(stratified: bool) -> None:
    gamma = distribution(SKIP, 3)
    every = [(kept, p) for kept, p in outcomes(SKIP, gamma.probabilities) if SKIP.live(rows(SKIP, [kept])).any()]
    index = {tuple(rows(SKIP, [kept])[0].tolist()): i for i, (kept, _) in enumerate(every)}
    p = torch.stack([p for _, p in every])
    assert float(p.sum()) < 0.8, "many do not connect"
    source = generator(8)
    draws = [gamma.sample(8, source, stratified=stratified, connected=True) for _ in range(4000)]
    observed = torch.bincount(torch.tensor([index[tuple(d.gates[3].tolist())] for d in draws]), minlength=len(index))
    assert chi_squared_p(observed.double(), p / p.sum() * 4000) > 1e-3
    torch.testing.assert_close(draws[0].log_prob, gamma.log_prob(draws[0].gates))


def test_a_distribution_that_hardly_ever_connects_is_given_up_on() -> None:
    gamma = EdgeDistribution(SKIP, initial=-40.0)
    assert not gamma.sample(8, generator(0), connected=True).gates.any()


def test_with_advantages_that_sum_to_zero_the_gradient_is_that_of_what_connects() -> None:
    """By enumeration over pairs of connected architectures: it is the gradient of E[D | connected]."""
    gamma = distribution(SKIP, 4)
    kept, p = zip(*outcomes(SKIP, torch.sigmoid(gamma.logits)), strict=True)
    connected = SKIP.live(rows(SKIP, list(kept))).any(1)
    joint = torch.stack(p)[connected]
    given_connected = joint / joint.sum()
    objective = torch.randn(len(joint), generator=generator(1), dtype=torch.float64)
    (truth,) = torch.autograd.grad((given_connected * objective).sum(), gamma.logits, retain_graph=True)
    log_prob = gamma.log_prob(rows(SKIP, [k for k, c in zip(kept, connected.tolist(), strict=True) if c]))
    weight = (given_connected[:, None] * given_connected[None]).detach()
    advantage = objective[:, None] - objective[None]  # leave-one-out of two: each is the other's baseline
    loss = (weight * advantage * (log_prob[:, None] - log_prob[None])).sum() / 2
    (score,) = torch.autograd.grad(loss, gamma.logits)
    torch.testing.assert_close(score, truth)


@given(st.integers(0, 2**31), st.integers(2, 20))
@examples(60)
def test_stratified_architectures_share_every_edge_out_evenly_among_neighbours(seed: int, n: int) -> None:
    graph = Graph(Edge(f"e{i}", "x", "y") for i in range(7))
    gamma = distribution(graph, seed)
    gates = gamma.sample(n, generator(seed), stratified=True).gates
    assert bool(((gates.sum(0) - n * gamma.probabilities).abs() < 1).all())
    assert int((gates != gates.roll(1, 0)).sum(0).max()) <= 2, "kept by neighbours on a ring"


def test_the_chi_squared_test_notices_a_sampler_that_forgets_the_connectivity_rule() -> None:
    gamma = distribution(SKIP, 1)
    kept, p = zip(*outcomes(SKIP, gamma.probabilities), strict=True)
    on, every = gamma.probabilities, every_gate_row(SKIP)
    careless = torch.where(every, on, 1 - on).prod(1)
    index = {tuple(row): i for i, row in enumerate(rows(SKIP, list(kept)).tolist())}
    observed = torch.zeros(len(index), dtype=torch.float64)
    for row, probability in zip(every.tolist(), careless, strict=True):
        if tuple(row) in index:
            observed[index[tuple(row)]] += 20_000 * probability
    assert chi_squared_p(observed, torch.stack(p) * 20_000) < 1e-6


@given(*SMALL)
@examples(40)
def test_a_draw_keeps_only_edges_that_the_input_reaches(seed: int, graph: Graph) -> None:
    gamma = distribution(graph, seed)
    draw = gamma.sample(16, generator(seed))
    drawable = {kept for kept, _ in outcomes(graph, gamma.probabilities)}
    assert all(graph.architecture(row).kept in drawable for row in draw.gates)
    torch.testing.assert_close(draw.log_prob, gamma.log_prob(draw.gates))
    assert draw.log_prob.requires_grad


def test_edges_that_were_not_drawn_get_no_gradient() -> None:
    gamma = EdgeDistribution(SKIP)
    gates = torch.tensor([[False, False, False, True, False]])
    gamma.log_prob(gates).sum().backward()
    assert gamma.logits.grad is not None
    p = float(torch.sigmoid(torch.tensor(3.0)))
    torch.testing.assert_close(gamma.logits.grad, torch.tensor([-p, 0, 0, 1 - p, -p]))


@given(st.integers(0, 2**31), graphs())
@examples(80)
def test_the_mode_is_connected_and_adds_only_the_most_probable_path(seed: int, graph: Graph) -> None:
    gamma = distribution(graph, seed, spread=3)
    gamma.logits.data -= 2
    likely = frozenset(e.name for e, p in zip(graph.edges, gamma.probabilities.tolist(), strict=True) if p > 0.5)
    mode = gamma.mode()
    assert mode.connected
    if any(path <= likely for path in paths(graph)):
        assert mode.kept == likely
    else:
        p = dict(zip(graph.index, gamma.probabilities.tolist(), strict=True))
        best = max(math.prod(p[name] for name in path) for path in paths(graph))
        added = [path for path in paths(graph) if mode.kept == likely | path]
        assert any(math.prod(p[name] for name in path) == pytest.approx(best) for path in added)


@pytest.mark.parametrize("logit", [-200.0, -1e30, 0.0])
def test_the_mode_is_connected_even_where_every_probability_vanishes(logit: float) -> None:
    assert EdgeDistribution(SKIP, initial=logit).mode().connected


def test_entropy_is_in_bits() -> None:
    gamma = EdgeDistribution(SKIP, initial=0.0)
    torch.testing.assert_close(gamma.entropy(), torch.ones(5, dtype=torch.float64))
    gamma.logits.data = torch.tensor([math.log(3), 50.0, -50.0, 1000.0, -1000.0])
    expected = -(0.75 * math.log2(0.75) + 0.25 * math.log2(0.25))
    torch.testing.assert_close(gamma.entropy()[0], torch.tensor(expected).double(), rtol=1e-6, atol=0)
    assert bool((gamma.entropy()[1:] < 1e-9).all())


def test_probabilities_start_at_the_papers_value_and_certainties_are_kept() -> None:
    gamma = EdgeDistribution(SKIP)
    torch.testing.assert_close(gamma.probabilities, torch.full((5,), 1 / (1 + math.exp(-3))))
    gamma.logits.data.fill_(100.0)
    draw = gamma.sample(64)
    assert bool(draw.gates.all())
    assert float(draw.log_prob.detach().abs().max()) < 1e-6


def test_a_seeded_generator_gives_the_same_draw_and_leaves_the_global_one_alone() -> None:
    gamma = EdgeDistribution(SKIP, initial=0.0)
    state = torch.get_rng_state()
    first, second = gamma.sample(50, generator(3)), gamma.sample(50, generator(3))
    assert torch.equal(first.gates, second.gates)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first.gates, gamma.sample(50, generator(4)).gates)


def test_drawing_many_architectures_takes_as_many_calls_as_drawing_one() -> None:
    gamma = EdgeDistribution(resnet_fabric(width=4, channels=2, input_shape=(3, 8, 8)).graph)
    gamma.sample(1)
    assert count_calls(lambda: gamma.sample(128)) == count_calls(lambda: gamma.sample(1))


def test_gamma_is_saved_and_restored_as_a_module() -> None:
    gamma, other = distribution(SKIP, 1), EdgeDistribution(SKIP).double()
    other.load_state_dict(gamma.state_dict())
    assert torch.equal(other.probabilities, gamma.probabilities)
