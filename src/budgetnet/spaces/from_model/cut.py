"""Where a model is cut: values that everything passes, additions with their operands, and the pieces between them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx, nn

from budgetnet.spaces.from_model.axes import Found
from budgetnet.spaces.from_model.labels import number
from budgetnet.spaces.from_model.lift import Lifted
from budgetnet.spaces.from_model.trace import operation


@dataclass(eq=False)
class Piece:
    """Calls from one value to another that run as one, and the axes along which they can be narrowed."""

    start: fx.Node
    end: fx.Node
    nodes: list[fx.Node]
    axes: list[Found] = field(default_factory=list)


@dataclass(eq=False)
class Branch:
    """What leads from a value of the graph to another one: an operand of an addition, or all between them."""

    start: fx.Node
    target: fx.Node
    nodes: list[fx.Node]
    end: fx.Node
    droppable: bool = False
    pieces: list[Piece] = field(default_factory=list)


class Cutter:
    """Cuts the main values of a graph into branches."""

    def __init__(self, lifted: Lifted, main: Collection[fx.Node], kept: Collection[str]) -> None:
        self.lifted, self.kept = lifted, set(kept)
        self.order = [node for node in lifted.graph.nodes if node in main]
        self.rank = {node: i for i, node in enumerate(self.order)}
        self.activated: dict[fx.Node, fx.Node] = {}
        """For an addition, the rectifier that alone reads it: the activation of its node."""

    def branches(self) -> list[Branch]:
        """All branches, in the order of their targets."""
        spine = self.spine(self.order)
        source, sink = self.order[0], self.order[-1]
        marked, decomposed = {source, sink}, dict[fx.Node, list[Branch]]()
        for before, node in itertools.pairwise(spine):
            if self.joins(node) and by_example(before):
                inner = self.order[self.rank[before] + 1 : self.rank[node] + 1]
                found = self._decompose(before, node, inner)
                if found is not None:
                    value = self._activate(node)
                    decomposed[value] = found
                    marked |= {before, value}
        nodes = sorted(marked, key=self.rank.__getitem__)
        result: list[Branch] = []
        for before, node in itertools.pairwise(nodes):
            inner = self.order[self.rank[before] + 1 : self.rank[node] + 1]
            result += decomposed.get(node) or [Branch(before, node, inner, node)]
        return result

    def _activate(self, join: fx.Node) -> fx.Node:
        """The value of an addition's node: what a rectifier makes of it, if nothing else reads it."""
        readers = list(join.users)
        if len(readers) == 1 and type(self.lifted.layer(readers[0])) is nn.ReLU and not self._is_kept(readers[0]):
            self.activated[join] = readers[0]
            return readers[0]
        return join

    def operands(self, node: fx.Node) -> list[fx.Node]:
        """The main values that a call reads."""
        return [argument for argument in node.all_input_nodes if argument in self.rank]

    def spine(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """The values that every path through these calls passes; the first node is where they begin."""
        place = {node: i for i, node in enumerate(nodes)}
        found, reach = [], 0
        for i, node in enumerate(nodes):
            if reach <= i:
                found.append(node)
            reach = max([reach, *(place[user] for user in node.users if user in place)])
        return found

    def joins(self, node: fx.Node) -> bool:
        """Whether a call adds two main values of one shape."""
        if operation(node) != "add" or len(node.args) != 2 or node.kwargs or not by_example(node):
            return False
        one, two = node.args
        if not (isinstance(one, fx.Node) and isinstance(two, fx.Node) and one in self.rank and two in self.rank):
            return False
        sizes = node.meta["val"].shape
        return all(v.meta["val"].shape == sizes and by_example(v) and same_type(v, node) for v in (one, two))

    def _decompose(self, start: fx.Node, node: fx.Node, inner: Sequence[fx.Node]) -> list[Branch] | None:
        """The operands of an addition, and of those inside of them, as branches; None if they cannot be told apart."""
        joins = {call for call in inner if self.joins(call)}
        return self._split(start, joins) or (self._split(start, {node}) if len(joins) > 1 else None)

    def _split(self, start: fx.Node, joins: set[fx.Node]) -> list[Branch] | None:
        ends = [(join, operand) for join in sorted(joins, key=self.rank.__getitem__) for operand in join.args]
        cuts = {start, *joins}
        forks: list[fx.Node] = []
        while True:
            wanted: list[tuple[Any, Any]] = [*ends, *((fork, fork) for fork in forks)]
            regions = [self._region(end, cuts, whole=target is end) for target, end in wanted]
            owners: dict[fx.Node, set[int]] = {}
            for i, region in enumerate(regions):
                for call in region:
                    owners.setdefault(call, set()).add(i)
            shared = [
                call
                for call, of in owners.items()
                if len(of) > 1 and any(owners.get(user) != of for user in call.users)
            ]
            if not shared:
                break
            if not all(by_example(call) for call in shared):
                return None
            forks += sorted(shared, key=self.rank.__getitem__)
            cuts |= set(shared)
        result = []
        for (target, end), region in zip(wanted, regions, strict=True):
            sources = {a for call in region for a in self.operands(call) if a in cuts and a is not target} or {end}
            if len(sources) != 1:
                return None
            result.append(Branch(sources.pop(), target, region, end))
        self._choose(result, joins)
        return sorted(result, key=lambda branch: self.rank[branch.target])

    def _region(self, end: fx.Node, cuts: Collection[fx.Node], *, whole: bool) -> list[fx.Node]:
        """The calls that make a value, back to where the graph is cut."""
        found, stack = set[fx.Node](), [end]
        while stack:
            node = stack.pop()
            if node in found or (node in cuts and not (whole and node is end)):
                continue
            found.add(node)
            stack += self.operands(node)
        return sorted(found, key=self.rank.__getitem__)

    def _choose(self, branches: Sequence[Branch], joins: Collection[fx.Node]) -> None:
        """The smallest operand of an addition stays, others may be dropped; all parts of a concatenation may."""
        for join in joins:
            operands = [branch for branch in branches if branch.target is join and branch.end is not join]
            skip = min(operands, key=lambda branch: (self._weights(branch), len(branch.nodes)))
            for branch in operands:
                whole = branch.nodes and not any(self._is_kept(node) for node in branch.nodes)
                branch.droppable = bool(whole) and (branch is not skip or bool(join.meta.get("concatenation")))

    def _weights(self, branch: Branch) -> int:
        layers = [layer for node in branch.nodes if (layer := self.lifted.layer(node)) is not None]
        return sum(parameter.numel() for layer in layers for parameter in layer.parameters())

    def _is_kept(self, node: fx.Node) -> bool:
        names = [str(argument.target) for argument in node.all_input_nodes if argument.op == "get_attr"]
        names += [str(node.target)] if node.op == "call_module" else []
        return any(name == kept or name.startswith(kept + ".") for name in names for kept in self.kept)

    def pieces(self, branches: Sequence[Branch], axes: Sequence[Found]) -> list[Found]:
        """Cuts every branch into fixed pieces and pieces with axes; gives the axes that lie in no single branch."""
        homeless = list(axes)
        for branch in branches:
            inside = set(branch.nodes)
            own = [axis for axis in homeless if axis.calls <= inside and branch.end not in axis.values]
            homeless = [axis for axis in homeless if axis not in own]
            if branch.nodes:
                self._pieces(branch, own)
        return homeless

    def _pieces(self, branch: Branch, axes: Sequence[Found]) -> None:
        """Pieces begin and end with values that everything in the branch passes, with a row for each example."""
        nodes = [branch.start, *branch.nodes]
        place = {node: i for i, node in enumerate(nodes)}
        gates = [place[node] for node in self.spine(nodes) if by_example(node)]
        spans: list[tuple[int, int, list[Found]]] = []
        for axis in sorted(axes, key=lambda axis: min(place[call] for call in axis.calls)):
            first, last = min(place[call] for call in axis.calls), max(place[call] for call in axis.calls)
            start, stop = max(gate for gate in gates if gate < first), min(gate for gate in gates if gate >= last)
            if spans and start < spans[-1][1]:
                before = spans.pop()
                spans.append((min(before[0], start), max(before[1], stop), [*before[2], axis]))
            else:
                spans.append((start, stop, [axis]))
        done = 0
        for start, stop, inside in [*spans, (len(nodes) - 1, len(nodes) - 1, [])]:
            if start > done:
                branch.pieces.append(Piece(nodes[done], nodes[start], nodes[done + 1 : start + 1]))
            if stop > start:
                branch.pieces.append(Piece(nodes[start], nodes[stop], nodes[start + 1 : stop + 1], inside))
            done = max(done, stop)


def by_example(node: fx.Node) -> bool:
    """Whether a value is a tensor with a row for each example, and the batch size nowhere else in its shape."""
    value: Any = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dim() == 0 or type(value.shape[0]) is int:
        return False
    return number(value.shape[0]) == 1 and all(isinstance(size, int) for size in value.shape[1:])


def same_type(one: fx.Node, two: fx.Node) -> bool:
    """Whether two values have the same type of numbers."""
    return bool(one.meta["val"].dtype == two.meta["val"].dtype)
