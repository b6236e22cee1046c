"""`steps`: the ticks that an architecture takes when at most n units run at once (paper, section 4.3 and appendix).

Units are the stem, every edge, the sum at every node but the source, and the head. Identity edges cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from budgetnet.costs.base import Cost
from budgetnet.errors import UserError
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

ALLOCATIONS = ("critical-path", "dfs")


class Schedule(NamedTuple):
    """The number of ticks, and the tick (from 1) in which each live unit starts: edges, then nodes, then the head.

    A unit that costs nothing starts in the tick that follows, a dead one in none (0).
    """

    ticks: int
    starts: tuple[int, ...]


@dataclass(eq=False)
class Steps(Cost):
    """Greedy list scheduling of the live units, in the order that the allocation gives."""

    graph: Graph
    machines: int
    allocation: str
    costs: tuple[int, ...]
    order: tuple[int, ...]
    """Each unit's place in `dfs` order."""
    work: Graph
    """The graph of what runs as one call: the graph itself, with every bundle or chain of bundles as one edge."""

    def evaluate(self, live: Tensor) -> Tensor:
        """The ticks of each row of live gates (n × edges), float64."""
        if not self.graph.bundles:
            return torch.tensor([schedule.ticks for schedule in self.work_schedules(live)], dtype=torch.float64)
        # rows that differ only in the units that they keep of a bundle have the same schedule
        first = torch.tensor([operation.axes[0][0] for operation in self.graph.operations])
        rows, which = torch.unique(self._operations(live), dim=0, return_inverse=True)
        different = torch.zeros(len(rows), live.shape[1], dtype=torch.bool)
        different[:, first] = rows
        ticks = [schedule.ticks for schedule in self.work_schedules(different)]
        return torch.tensor(ticks, dtype=torch.float64)[which]

    def _operations(self, live: Tensor) -> Tensor:
        """Which operations (n × operations) have a live edge."""
        return torch.stack([live[:, list(operation.axes[0])].any(1) for operation in self.graph.operations], 1)

    def schedules(self, live: Tensor) -> list[Schedule]:
        """A schedule for each row of live gates; all live units of a bundle start when the bundle does."""
        found = self.work_schedules(live)
        if not self.graph.bundles:
            return found
        return [self._spread(schedule, row) for schedule, row in zip(found, live.tolist(), strict=True)]

    def work_schedules(self, live: Tensor) -> list[Schedule]:
        """The same with what runs as one call: operations, the nodes of `work`, the head, in the order of `costs`."""
        rows = live.numpy()
        if self.graph.bundles:
            rows = self._operations(live).numpy()
        priorities = self._priorities(rows)
        return [self._schedule(row, priority) for row, priority in zip(rows.tolist(), priorities.tolist(), strict=True)]

    def _spread(self, schedule: Schedule, live: list[bool]) -> Schedule:
        """A schedule of operations as one of edges, nodes and head; a node within a chain starts with the chain."""
        graph, operations = self.graph, self.graph.operations
        edges, nodes = [0] * len(graph.edges), [0] * len(graph.nodes)
        for node, name in enumerate(self.work.nodes):
            nodes[graph.nodes.index(name)] = schedule.starts[len(operations) + node]
        for start, operation in zip(schedule.starts, operations, strict=False):
            for edge in operation.edges:
                edges[edge] = start if live[edge] else 0
            for axis in operation.axes[:-1]:
                nodes[graph.targets[axis[0]]] = start
        return Schedule(schedule.ticks, (*edges, *nodes, schedule.starts[-1]))

    def _priorities(self, live: np.ndarray) -> np.ndarray:
        """A number per architecture and unit, the smallest first; unit numbers are its remainder by the unit count."""
        place = np.asarray(self.order)
        if self.allocation == "dfs":
            return np.broadcast_to(place, (len(live), len(place)))
        priorities: np.ndarray = place - self._remaining(live) * len(place)
        return priorities

    def _remaining(self, live: np.ndarray) -> np.ndarray:
        """The longest path, in unit cost, from each unit to the end of the live part, its own cost included."""
        graph, edge_count = self.work, len(self.work.edges)
        longest = np.zeros((len(live), len(self.costs)), np.int64)
        longest[:, -1] = self.costs[-1]
        for node in range(len(graph.nodes) - 1, -1, -1):
            unit, outgoing = edge_count + node, graph.outgoing[node]
            after = (longest[:, outgoing] * live[:, outgoing]).max(1) if outgoing else longest[:, -1]
            longest[:, unit] = self.costs[unit] + after
            for edge in graph.incoming[node]:
                longest[:, edge] = self.costs[edge] + longest[:, unit]
        return longest

    def _schedule(self, live: list[bool], priority: list[int]) -> Schedule:
        graph, units, edge_count = self.work, len(self.costs), len(self.work.edges)
        waiting = [1] * edge_count + [sum(live[e] for e in incoming) for incoming in graph.incoming] + [1]
        unit_at, followers = self._unit_at, self._all_followers
        starts = [0] * units
        ready = [priority[edge_count]]
        ticks = 0
        while ready:
            begun: list[int] = []
            running = 0
            while ready and running < self.machines:
                unit = unit_at[heappop(ready) % units]
                begun.append(unit)
                running += self.costs[unit]
            for unit in begun:
                starts[unit] = ticks + 1
                for follower in followers[unit]:
                    waiting[follower] -= 1
                    if waiting[follower] == 0 and (follower >= edge_count or live[follower]):
                        heappush(ready, priority[follower])
            ticks += running > 0
        return Schedule(ticks, tuple(starts))

    @cached_property
    def _unit_at(self) -> dict[int, int]:
        return {place: unit for unit, place in enumerate(self.order)}

    @cached_property
    def _all_followers(self) -> list[tuple[int, ...]]:
        return [self._followers(unit) for unit in range(len(self.costs))]

    def _followers(self, unit: int) -> tuple[int, ...]:
        graph, edge_count = self.work, len(self.work.edges)
        if unit < edge_count:
            return (edge_count + graph.targets[unit],)
        if unit == edge_count + len(graph.nodes):
            return ()
        return graph.outgoing[unit - edge_count] or (len(self.costs) - 1,)


def steps(net: SuperNetwork, machines: int, allocation: str = "critical-path") -> Steps:
    """Ticks to compute an architecture when only so many units run at once.

    Args:
        net: The super network.
        machines: Units that run at once, at most.
        allocation: The order in which units are scheduled: `critical-path`, or `dfs` as in the paper.

    Returns:
        The cost: an architecture in, ticks out.
    """
    if isinstance(machines, bool) or machines < 1:
        raise UserError(f"steps on {machines} machines cannot be computed; use 1 machine or more")
    if allocation not in ALLOCATIONS:
        raise UserError(f"allocation {allocation!r} does not exist; use {' or '.join(ALLOCATIONS)}")
    sums = [1] * (len(_of_operations(net.graph).nodes) - 1)
    costs = [*(_unit_cost(module) for module in (*net.edge_modules, net.stem)), *sums, _unit_cost(net.head)]
    return of_units(net.graph, machines, allocation, tuple(costs))


def of_units(graph: Graph, machines: int, allocation: str, costs: tuple[int, ...]) -> Steps:
    """The cost for units whose own costs are known: operations, the stem, the sums at the other nodes, the head."""
    work = _of_operations(graph)
    units = len(work.edges) + len(work.nodes) + 1
    if len(costs) != units:
        raise UserError(f"{len(costs)} costs were given for {units} units of work; give one for each")
    return Steps(graph, machines, allocation, costs, _depth_first(work), work)


def _of_operations(graph: Graph) -> Graph:
    """The graph with one edge for each operation: the units of a bundle are one unit of work."""
    if not graph.bundles:
        return graph
    nodes = graph.nodes
    return Graph(Edge(each.name, nodes[each.source], nodes[each.target]) for each in graph.operations)


def _unit_cost(module: nn.Module) -> int:
    return 0 if isinstance(module, nn.Identity) else 1


def _depth_first(graph: Graph) -> tuple[int, ...]:
    """Each unit's place in the reverse post-order of a depth-first search, the last-inserted edge explored first."""
    edge_count = len(graph.edges)
    finished: list[int] = []
    seen = {0}
    stack: list[tuple[int, list[int]]] = [(0, list(graph.outgoing[0]))]
    while stack:
        node, edges = stack[-1]
        if not edges:
            finished.append(edge_count + node)
            stack.pop()
            if stack:
                finished.append(stack[-1][1].pop())
        elif (target := graph.targets[edges[-1]]) in seen:
            finished.append(edges.pop())
        else:
            seen.add(target)
            stack.append((target, list(graph.outgoing[target])))
    place = {unit: i for i, unit in enumerate(reversed(finished))}
    return (*(place[unit] for unit in range(edge_count + len(graph.nodes))), len(place))
