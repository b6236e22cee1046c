"""The execution plan: every live edge once, on the rows that keep it, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from budgetnet.network.executor.plan import Plan, group_of_rows, make_plan
from budgetnet.network.executor.rows import Rows
from budgetnet.network.graph import Edge, Graph
from tests.random_graphs import examples, graphs, live_names, random_gates


def plan_of(graph: Graph, gates: Tensor, batch: int) -> Plan:
    return make_plan(graph, np.packbits(gates.numpy()).tobytes(), len(gates), batch)


def spelled_out(rows: Rows, count: int) -> list[int]:
    if rows is None:
        return list(range(count))
    return list(range(count))[rows] if isinstance(rows, slice) else rows.tolist()


@pytest.mark.parametrize("batch", range(1, 20))
def test_groups_are_neighbours_whose_sizes_differ_by_at_most_one(batch: int) -> None:
    for groups in range(1, batch + 1):
        rows = group_of_rows(batch, groups)
        sizes = torch.bincount(rows, minlength=groups)
        assert len(rows) == batch
        assert rows.tolist() == sorted(rows.tolist())
        assert int(sizes.max()) - int(sizes.min()) <= 1


@given(graphs(), st.integers(1, 5), st.integers(0, 4), st.integers(0, 2**31))
@examples(120)
def test_a_plan_moves_examples_over_exactly_their_live_edges(graph: Graph, groups: int, more: int, seed: int) -> None:
    gates = random_gates(graph, groups, seed, connected=False)
    batch = groups + more
    plan = plan_of(graph, gates, batch)
    live = [live_names(graph.architecture(gates[group])) for group in group_of_rows(batch, groups).tolist()]
    rows_of = {graph.nodes.index(graph.source): spelled_out(plan.inputs, batch) if plan.steps else []}
    travelled: list[set[str]] = [set() for _ in range(batch)]
    for step in plan.steps:
        arriving = [spelled_out(run.place, step.rows) for run in step.runs]
        rows_of[step.node] = [-1] * step.rows
        for run, places in zip(step.runs, arriving, strict=True):
            taken = [rows_of[run.source][i] for i in spelled_out(run.take, len(rows_of[run.source]))]
            assert len(taken) == len(places)
            for row, place in zip(taken, places, strict=True):
                assert rows_of[step.node][place] in (-1, row), "an example's value lands on another's row"
                rows_of[step.node][place] = row
                travelled[row].add(graph.operations[run.operation].name)
        assert rows_of[step.node] == sorted(rows_of[step.node])
        assert -1 not in rows_of[step.node]
    assert travelled == live


@given(graphs(), st.integers(0, 2**31))
@examples(60)
def test_values_are_freed_once_and_only_when_nobody_needs_them(graph: Graph, seed: int) -> None:
    plan = plan_of(graph, random_gates(graph, 3, seed), 3)
    freed: set[int] = set()
    for step in plan.steps:
        assert not freed & {run.source for run in step.runs}
        assert not freed & set(step.free)
        freed |= set(step.free)
    computed = {0, *(step.node for step in plan.steps)}
    assert freed == computed - {len(graph.nodes) - 1}


def test_each_live_edge_is_run_once_however_many_groups_keep_it() -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "x", "y"), Edge("c", "y", "z")])
    gates = torch.tensor([[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 0]]).bool()
    plan = plan_of(graph, gates, 8)
    assert sorted(run.operation for step in plan.steps for run in step.runs) == [0, 1, 2]
    assert spelled_out(plan.inputs, 8) == [0, 1, 2, 3, 4, 5]


def test_one_group_and_neighbouring_groups_need_no_copy() -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "x", "y")])
    whole = plan_of(graph, torch.ones(1, 2, dtype=torch.bool), 6)
    assert whole.inputs is None
    assert all(run.take is None and run.place is None for run in whole.steps[0].runs)
    halves = plan_of(graph, torch.tensor([[True, False], [True, True]]), 6)
    assert [run.take for run in halves.steps[0].runs] == [None, slice(3, 6)]


def test_sums_that_cover_every_row_come_first() -> None:
    graph = Graph([Edge("part", "x", "y"), Edge("whole", "x", "y")])
    plan = plan_of(graph, torch.tensor([[True, True], [False, True]]), 2)
    assert [graph.operations[run.operation].name for run in plan.steps[0].runs] == ["whole", "part"]


def test_equal_gates_are_planned_once() -> None:
    graph = Graph([Edge("a", "x", "y"), Edge("b", "x", "y"), Edge("once", "y", "z")])
    gates = torch.tensor([[True, False, True]])
    before = make_plan.cache_info()
    assert plan_of(graph, gates, 3) is plan_of(Graph(graph.edges), gates.clone(), 3)
    after = make_plan.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (1, 1)
