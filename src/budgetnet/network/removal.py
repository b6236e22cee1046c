"""Edges that are dropped from a live architecture one after the other, and what dies with each of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from budgetnet.network.graph import Graph


class _Rest:
    """What is left of a live architecture, with the live edges at both sides of every node."""

    def __init__(self, graph: Graph, live: Sequence[int]) -> None:
        self.graph, self.left, last = graph, set(live), len(graph.nodes) - 1
        self.entering = {node: set[int]() for node in range(1, last + 1)}
        self.leaving = {node: set[int]() for node in range(last)}
        for edge in live:
            self.entering[graph.targets[edge]].add(edge)
            self.leaving[graph.sources[edge]].add(edge)

    def drop(self, edge: int) -> list[int]:
        """Drops an edge; returns it and those that are on no path without it, or none if no path would be left."""
        dead, waiting = {edge}, [edge]
        while waiting:
            first = waiting.pop()
            source, target = self.graph.sources[first], self.graph.targets[first]
            if self.leaving[source] <= dead:
                if source == 0:
                    return []
                waiting += self.entering[source] - dead
                dead |= self.entering[source]
            if self.entering[target] <= dead:
                if target == len(self.graph.nodes) - 1:
                    return []
                waiting += self.leaving[target] - dead
                dead |= self.leaving[target]
        self._remove(dead)
        return sorted(dead)

    def _remove(self, dead: set[int]) -> None:
        self.left -= dead
        for edge in dead:
            self.entering[self.graph.targets[edge]].discard(edge)
            self.leaving[self.graph.sources[edge]].discard(edge)


def lifetimes(graph: Graph, live: Tensor, order: Sequence[int]) -> Tensor:
    """How many drops each edge survives, when edges are dropped in this order.

    An edge without which the input does not reach the output stays, and so does a fixed one.

    Args:
        graph: The graph.
        live: A row of live gates (edges, bool).
        order: The numbers of the edges, the first to go first.

    Returns:
        For each edge the number of drops after which it is still there: that of all drops for one that is there in the
        end, −1 for one that was not live.
    """
    rest, fixed = _Rest(graph, live.nonzero().flatten().tolist()), graph.fixed.tolist()
    survived, drops = torch.full((len(graph.edges),), -1), 0
    for edge in order:
        if edge in rest.left and not fixed[edge] and (dead := rest.drop(edge)):
            survived[dead] = drops
            drops += 1
    survived[sorted(rest.left)] = drops
    return survived
