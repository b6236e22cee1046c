"""The execution plan of a set of gates: which operation runs on which rows, and where its output is added.

A node's value holds only the rows (examples) of the groups in which the node is live, in the order of the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from budgetnet.network.executor.rows import Rows
from budgetnet.network.graph import Graph, Operation

CPU = torch.device("cpu")

Keeps = tuple[tuple[bool, ...], ...]


def group_of_rows(batch: int, groups: int) -> Tensor:
    """The group of each example: neighbours share a group, and sizes differ by at most one."""
    sizes = torch.full((groups,), batch // groups)
    sizes[: batch % groups] += 1
    return torch.repeat_interleave(torch.arange(groups), sizes)


@dataclass(frozen=True)
class Run:
    """One operation, once: which rows of its source it takes, and where its output goes in its target's sum.

    A bundle runs once for each distinct set of kept units: `keeps` has them by axis, None if all are kept. `rows` are
    the examples, for values that belong to them and come from beside.
    """

    key: int
    operation: int
    source: int
    take: Rows
    place: Rows
    rows: Rows
    keeps: Keeps | None = None


@dataclass(frozen=True)
class Step:
    """One node: the operations to run and sum, the rows of the sum, and the nodes that nobody needs afterwards.

    `gap` are the rows that the first run leaves out; it is the one that covers most.
    """

    node: int
    runs: tuple[Run, ...]
    rows: int
    gap: Rows
    free: tuple[int, ...]


@dataclass(frozen=True)
class Spread:
    """The rows of a node's value that each run reads (by key), most rows first; `gap`: those that the first leaves."""

    runs: tuple[int, ...]
    parts: tuple[Rows, ...]
    gap: Rows


@dataclass(frozen=True)
class Plan:
    """The live nodes in topological order, and the examples whose architecture is connected.

    `spreads` has the nodes of which some run does not read every row.
    """

    inputs: Rows
    gap: Rows
    """The examples whose architecture is not connected."""
    steps: tuple[Step, ...]
    spreads: Mapping[int, Spread]


@lru_cache(maxsize=256)
def make_plan(graph: Graph, packed: bytes, groups: int, batch: int, device: torch.device = CPU) -> Plan:
    """The plan of gates (groups × edges, as packed bits) on so many examples; a function of values, hence cached.

    Its index tensors are on the device, where they go once, in one copy.
    """
    count = groups * len(graph.edges)
    gates = np.unpackbits(np.frombuffer(packed, np.uint8), count=count).reshape(groups, -1).astype(bool)
    live = graph.live(torch.from_numpy(gates))[group_of_rows(batch, groups)].numpy()
    nodes = np.zeros((batch, len(graph.nodes)), bool)
    for node, incoming in enumerate(graph.incoming):
        ends = incoming or graph.outgoing[node]
        nodes[:, node] = live[:, ends].any(1)
    runs = _runs(graph, live, nodes)
    last_use = {run.source: node for node, group in enumerate(runs) for run in group}
    steps = [
        Step(
            node,
            tuple(group),
            int(nodes[:, node].sum()),
            _complement(group[0].place, int(nodes[:, node].sum())),
            tuple(source for source in {run.source for run in group} if last_use[source] == node),
        )
        for node, group in enumerate(runs)
        if group
    ]
    inputs = _rows(np.flatnonzero(nodes[:, 0]), batch)
    found = Plan(inputs, _complement(inputs, batch), tuple(steps), _spreads(runs, nodes.sum(0)))
    return found if device.type == "cpu" else _moved(found, device)


def _moved(plan: Plan, device: torch.device) -> Plan:
    """The plan with its index tensors on a device."""
    found: dict[int, Tensor] = {}

    def collect(value: Any) -> Any:
        if isinstance(value, Tensor):
            found.setdefault(id(value), value)
        return value

    _mapped(collect, plan)
    if not found:
        return plan
    lengths = [len(index) for index in found.values()]
    together = torch.cat(list(found.values()))
    together = (together.pin_memory() if device.type == "cuda" else together).to(device, non_blocking=True)
    moved = dict(zip(found, torch.split(together, lengths), strict=True))

    def move(value: Any) -> Any:
        return moved[id(value)] if isinstance(value, Tensor) else value

    return cast(Plan, _mapped(move, plan))


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A plan with a function applied to everything in it that is neither a value class nor a collection of them."""
    if isinstance(value, Plan | Step | Spread | Run):
        names = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: _mapped(function, getattr(value, name)) for name in names})
    if isinstance(value, tuple):
        return tuple(_mapped(function, part) for part in value)
    if isinstance(value, Mapping):
        return {key: _mapped(function, part) for key, part in value.items()}
    return function(value)


def _runs(graph: Graph, live: np.ndarray, nodes: np.ndarray) -> list[list[Run]]:
    """The runs of every node, those that cover most of its rows first, so that the others are added into them."""
    position = np.cumsum(nodes, 0) - 1
    counts = nodes.sum(0)
    runs: list[list[Run]] = [[] for _ in graph.nodes]
    key = 0
    for number, operation in enumerate(graph.operations):
        source, target = operation.source, operation.target
        for keeps, rows in _patterns(operation, live):
            take, place = position[rows, source], position[rows, target]
            whole = _rows(take, counts[source]), _rows(place, counts[target]), _rows(rows, len(live))
            runs[target].append(Run(key, number, source, *whole, keeps))
            key += 1
    return [sorted(group, key=lambda run: -_count(run.place, len(live))) for group in runs]


def _patterns(operation: Operation, live: np.ndarray) -> Iterator[tuple[Keeps | None, np.ndarray]]:
    """The distinct sets of kept units among the rows, and the rows of each; a plain edge has one."""
    kept = live[:, operation.edges]
    rows = np.flatnonzero(kept[:, 0] if not operation.bundle else kept.any(1))
    if not len(rows):
        return
    if not operation.bundle:
        yield None, rows
        return
    patterns, which = np.unique(kept[rows], axis=0, return_inverse=True)
    bounds = np.cumsum([0, *map(len, operation.axes)]).tolist()
    for i, pattern in enumerate(patterns):
        keeps = tuple(tuple(pattern[a:b].tolist()) for a, b in pairwise(bounds))
        yield (None if pattern.all() else keeps), rows[which.reshape(-1) == i]


def _spreads(runs: list[list[Run]], counts: np.ndarray) -> dict[int, Spread]:
    readers: dict[int, list[Run]] = {}
    for run in (run for group in runs for run in group):
        readers.setdefault(run.source, []).append(run)
    spreads = {}
    for node, group in readers.items():
        if any(run.take is not None for run in group):
            rows = int(counts[node])
            group.sort(key=lambda run: -_count(run.take, rows))
            keys, parts = zip(*((run.key, run.take) for run in group), strict=True)
            spreads[node] = Spread(keys, parts, _complement(parts[0], rows))
    return spreads


def _count(rows: Rows, of: int) -> int:
    if rows is None:
        return of
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _complement(rows: Rows, of: int) -> Rows:
    """The rows (of so many) that are not among these; None if there are none."""
    if rows is None:
        return None
    left = np.ones(of, bool)
    left[rows if isinstance(rows, slice) else rows.numpy()] = False
    return _rows(np.flatnonzero(left), of) if left.any() else None


def _rows(index: np.ndarray, count: int) -> Rows:
    """The cheapest way to say these rows (ascending) of so many."""
    if len(index) == count:
        return None
    if len(index) and index[-1] - index[0] + 1 == len(index):
        return slice(int(index[0]), int(index[-1]) + 1)
    return torch.from_numpy(index)
