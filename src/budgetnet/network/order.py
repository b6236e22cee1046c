"""The order of the nodes of a directed graph: topological, with one source and one sink."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from budgetnet.errors import UserError


def topological_order(arrows: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Kahn's algorithm; nodes that are free at the same time come in order of insertion.

    Args:
        arrows: Source and target of every edge.

    Returns:
        The nodes; a cycle is refused.
    """
    nodes = dict.fromkeys(node for arrow in arrows for node in arrow)
    waiting = dict.fromkeys(nodes, 0)
    followers: dict[str, list[str]] = {node: [] for node in nodes}
    for source, target in arrows:
        waiting[target] += 1
        followers[source].append(target)
    free = deque(node for node in nodes if waiting[node] == 0)
    order: list[str] = []
    while free:
        node = free.popleft()
        order.append(node)
        for follower in followers[node]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                free.append(follower)
    if len(order) < len(nodes):
        raise UserError(f"the graph has a cycle: {_cycle(arrows, set(nodes) - set(order))}; remove one of these edges")
    return tuple(order)


def _cycle(arrows: Sequence[tuple[str, str]], unordered: set[str]) -> str:
    """Walks backwards among nodes that wait for each other until one repeats: a cycle, as text."""
    before = {target: source for source, target in arrows if source in unordered and target in unordered}
    walk = [next(iter(sorted(before)))]
    while walk[-1] not in walk[:-1]:
        walk.append(before[walk[-1]])
    return " → ".join(repr(node) for node in reversed(walk[walk.index(walk[-1]) :]))


def edges_at(ends: Sequence[int], count: int) -> tuple[tuple[int, ...], ...]:
    """The numbers of the edges at each node, by the node at one end of every edge."""
    groups: list[list[int]] = [[] for _ in range(count)]
    for edge, node in enumerate(ends):
        groups[node].append(edge)
    return tuple(tuple(group) for group in groups)


def the_only(role: str, missing: str, nodes: Sequence[str], edges: Sequence[Sequence[int]]) -> str:
    """In a DAG every edge lies on a source→sink path exactly when there is one source and one sink."""
    found = [node for node, group in zip(nodes, edges, strict=True) if not group]
    if len(found) != 1:
        raise UserError(
            f"a graph has one {role}, this one has {len(found)}: {', '.join(map(repr, found))} have no {missing} edge, "
            f"so an edge at all but one of them is on no path; connect them or leave them out"
        )
    return found[0]
