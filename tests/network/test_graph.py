"""Edges, validated graphs, architectures: against definitions by enumeration of paths."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture, Edge, Graph
from tests.random_graphs import count_calls, every_gate_row, examples, graphs, live_names, paths, random_gates

DIAMOND = Graph([Edge("a", "in", "x"), Edge("b", "in", "y"), Edge("c", "x", "out"), Edge("d", "y", "out")])


def edges(*triples: str) -> list[Edge]:
    return [Edge(*triple.split()) for triple in triples]


@pytest.mark.parametrize(
    ("triples", "words"),
    [
        ([], ["at least one edge"]),
        (["a x y", "b y z", "a x z"], ["'a'", "name of its own"]),
        (["a s x", "b x y", "c y x", "d y t"], ["cycle", "'x'", "'y'", "remove"]),
        (["a x x", "b x y"], ["cycle", "'x' → 'x'"]),
        (["a s x", "b x t", "c t u", "d u x"], ["cycle", "'x'", "'t'", "'u'"]),
        (["a s x", "b r x", "c x t"], ["one source", "2", "'s'", "'r'"]),
        (["a s x", "b x t", "c x u"], ["one sink", "2", "'t'", "'u'"]),
        (["a s t", "b p q"], ["one source", "'s'", "'p'", "no path"]),
    ],
)
def test_a_graph_that_is_wrong_is_refused_with_the_name_of_what_is_wrong(triples: list[str], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        Graph(edges(*triples))
    for word in words:
        assert word in str(error.value)


def test_a_cycle_is_named_in_the_direction_of_its_edges() -> None:
    with pytest.raises(UserError) as error:
        Graph(edges("a s x", "b x y", "c y z", "d z x", "e z t"))
    walks = ("'x' → 'y' → 'z' → 'x'", "'y' → 'z' → 'x' → 'y'", "'z' → 'x' → 'y' → 'z'")
    assert any(walk in str(error.value) for walk in walks)


def test_an_edge_behind_a_cycle_is_not_taken_for_a_part_of_it() -> None:
    with pytest.raises(UserError) as error:
        Graph(edges("a s x", "b x y", "c y x", "d y after", "e after t"))
    assert "after" not in str(error.value)


@given(graphs())
@examples(100)
def test_nodes_are_in_topological_order_and_the_ends_are_first_and_last(graph: Graph) -> None:
    place = {node: i for i, node in enumerate(graph.nodes)}
    assert all(place[edge.source] < place[edge.target] for edge in graph.edges)
    assert (graph.nodes[0], graph.nodes[-1]) == (graph.source, graph.sink)
    for node, ends in enumerate(graph.incoming):
        assert [graph.edges[e].name for e in ends] == [e.name for e in graph.edges if e.target == graph.nodes[node]]
    for node, ends in enumerate(graph.outgoing):
        assert [graph.edges[e].name for e in ends] == [e.name for e in graph.edges if e.source == graph.nodes[node]]


@given(graphs(), st.integers(0, 2**31))
@examples(100)
def test_live_edges_are_the_union_of_the_kept_paths(graph: Graph, seed: int) -> None:
    gates = random_gates(graph, 6, seed, connected=False)
    for row, live in zip(gates, graph.live(gates), strict=True):
        architecture = graph.architecture(row)
        expected = live_names(architecture)
        assert architecture.live().kept == expected == graph.architecture(live).kept
        assert architecture.connected == bool(expected)
        assert architecture.live().live() == architecture.live()


@given(graphs(max_nodes=5, max_edges=8), st.integers(0, 2**31))
@examples(60)
def test_reached_and_reaching_are_reachability(graph: Graph, seed: int) -> None:
    for row in random_gates(graph, 3, seed, connected=False):
        forward, backward = {graph.source}, {graph.sink}
        for _ in graph.nodes:
            for edge in graph.architecture(row):
                forward |= {edge.target} if edge.source in forward else set()
                backward |= {edge.source} if edge.target in backward else set()
        assert graph.reached(row[None])[0].tolist() == [node in forward for node in graph.nodes]
        assert graph.reaching(row[None])[0].tolist() == [node in backward for node in graph.nodes]


@given(graphs(), st.integers(0, 2**31))
@examples(60)
def test_the_shortest_path_is_the_least_of_all_paths(graph: Graph, seed: int) -> None:
    weights = torch.rand(len(graph.edges), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    found = graph.shortest_path(weights)
    assert frozenset(graph.edges[i].name for i in found) in set(paths(graph))
    least = min(sum(weights[graph.index[name]] for name in path) for path in paths(graph))
    assert sum(weights[i] for i in found) == pytest.approx(least)


def test_the_shortest_path_exists_even_if_every_weight_is_infinite() -> None:
    assert len(DIAMOND.shortest_path([float("inf")] * 4)) == 2


@given(graphs(), st.integers(0, 2**31))
@examples(60)
def test_json_goes_both_ways(graph: Graph, seed: int) -> None:
    architecture = graph.architecture(random_gates(graph, 1, seed, connected=False)[0])
    again = Architecture.from_json(Graph(graph.edges), architecture.to_json())
    assert again == architecture
    assert hash(again) == hash(architecture)
    assert json.loads(architecture.to_json())["kept"] == [edge.name for edge in architecture]


def test_gates_and_architectures_are_the_same_thing() -> None:
    seen = set()
    for row in every_gate_row(DIAMOND):
        architecture = DIAMOND.architecture(row)
        assert torch.equal(architecture.gates(), row)
        assert len(architecture) == int(row.sum())
        assert [edge.name for edge in architecture] == [n for n, kept in zip("abcd", row.tolist(), strict=True) if kept]
        seen.add(architecture)
    assert len(seen) == 16
    assert DIAMOND.full in seen


def test_an_architecture_is_a_frozen_value() -> None:
    with pytest.raises(AttributeError):
        DIAMOND.full.kept = frozenset()  # type: ignore[misc]
    assert "a" in DIAMOND.full
    assert "z" not in DIAMOND.full
    assert Architecture(DIAMOND, frozenset("ac")).connected
    assert not Architecture(DIAMOND, frozenset("ad")).connected
    assert not Architecture(DIAMOND, frozenset()).connected


def test_graphs_are_equal_when_their_edges_are_in_the_same_order() -> None:
    same, other = Graph(DIAMOND.edges), Graph(reversed(DIAMOND.edges))
    assert same == DIAMOND
    assert hash(same) == hash(DIAMOND)
    assert same.fingerprint == DIAMOND.fingerprint
    assert other != DIAMOND
    assert other.fingerprint != DIAMOND.fingerprint
    assert Architecture(same, frozenset("ac")) == Architecture(DIAMOND, frozenset("ac"))


def test_fingerprints_tell_names_apart_however_they_are_cut() -> None:
    cuts = [("a", "b", "c"), ("a", "bc", "d"), ("ab", "c", "d"), ('a", "b', "c", "d")]
    assert len({Graph([Edge(*cut)]).fingerprint for cut in cuts}) == len(cuts)


def test_an_architecture_of_unknown_edges_is_refused() -> None:
    with pytest.raises(UserError, match="'zz', which is not an edge"):
        Architecture(DIAMOND, frozenset({"a", "zz"}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "could not be read"),
        ("{", "could not be read"),
        ("[]", "could not be read"),
        ("3", "could not be read"),
        ("null", "could not be read"),
        ("{}", "could not be read"),
        ("[" * 100_000, "could not be read"),
        ('{"graph": "x"}', "could not be read"),
        ('{"graph": "x", "kept": "abc"}', "list of edge names"),
        ('{"graph": "x", "kept": [1]}', "list of edge names"),
        ('{"graph": "x", "kept": ["a"]}', "made for the graph 'x'"),
        ('{"graph": ["x"], "kept": ["a"]}', "made for the graph"),
    ],
)
def test_a_malformed_architecture_file_is_refused_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        Architecture.from_json(DIAMOND, text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_file_that_keeps_an_unknown_edge_of_the_right_graph_is_refused() -> None:
    text = json.dumps({"graph": DIAMOND.fingerprint, "kept": ["a", "nowhere"]})
    with pytest.raises(UserError, match="nowhere"):
        Architecture.from_json(DIAMOND, text)


def test_reachability_of_many_architectures_takes_no_more_calls_than_of_one() -> None:
    nodes = [f"n{i}" for i in range(40)]
    chain = Graph(Edge(f"{a}{b}{i}", a, b) for a, b in itertools.pairwise(nodes) for i in range(2))
    one, many = random_gates(chain, 1, 0), random_gates(chain, 128, 0)
    chain.live(one)
    assert count_calls(lambda: chain.live(many)) == count_calls(lambda: chain.live(one))


def ears(graph: Graph, live: torch.Tensor, edge: int) -> list[list[int]]:
    """Every way to tie an edge to a live architecture: the part of a path through it between two nodes that live."""
    nodes = {graph.source, graph.sink}
    nodes |= {end for e in live.nonzero().flatten().tolist() for end in (graph.edges[e].source, graph.edges[e].target)}
    found = []
    for names in paths(graph):
        path = sorted((graph.index[name] for name in names), key=lambda e: graph.sources[e])
        if edge in path:
            place = path.index(edge)
            first = next(i for i in range(place, -1, -1) if graph.edges[path[i]].source in nodes)
            last = next(i for i in range(place, len(path)) if graph.edges[path[i]].target in nodes)
            found.append(path[first : last + 1])
    return found


@pytest.mark.parametrize("weightless", [False, True])
@examples(40)
@given(graph=graphs(), seed=st.integers(0, 1000))
def test_an_ear_is_the_lightest_and_then_the_shortest(weightless: bool, graph: Graph, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.zeros(len(graph.edges)) if weightless else torch.rand(len(graph.edges), generator=generator)
    live = graph.live(random_gates(graph, 1, seed))[0]
    others = (~live).nonzero().flatten().tolist()
    for edge, ear in zip(others, graph.ears(live, others, weights.tolist()), strict=True):
        choices = ears(graph, live, edge)
        assert sorted(ear) in map(sorted, choices)
        assert float(weights[ear].sum()) == pytest.approx(min(float(weights[choice].sum()) for choice in choices))
        if weightless:
            assert len(ear) == min(map(len, choices))
