"""The parts of a super network as lists of calls with their memory, and how they are put together to a network's."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from budgetnet.costs.footprints import Call, Footprint, Part, measured_part
from budgetnet.costs.kinds import kind_of, narrowed_kind
from budgetnet.network.axes import Keeps
from budgetnet.network.executor.sums import writes_into_input
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork, rewritable

IN_PLACE = Footprint(0, 0, 0)
"""A call that writes into the first value that it reads."""

Strides = tuple[int, ...]


class Value(NamedTuple):
    """A value of the network under analysis: its number among the calls' values, and its memory layout."""

    number: int
    strides: Strides


class Held(NamedTuple):
    """A value that a stretch begins with: its memory layout, and the bytes of its storage; 0 for the caller's input."""

    strides: Strides
    size: int


class Calls:
    """The calls of an extracted network, as they are put together."""

    def __init__(self) -> None:
        self.all: list[Call] = []

    def add(self, part: Part, inputs: Sequence[Value]) -> list[Value]:
        """The calls of a part on these inputs; the values that it gives."""
        begin, count = len(self.all), len(inputs)

        def number(value: int) -> int:
            if value > count:
                return begin + value - count
            return inputs[value - 1].number if value else 0

        self.all += [Call(tuple(map(number, call.reads)), call.footprint) for call in part.calls]
        return [Value(number(output), strides) for output, strides in zip(part.outputs, part.strides, strict=True)]

    def write(self, value: Value, *others: Value) -> Value:
        """A call that writes into a value."""
        self.all.append(Call((value.number, *(other.number for other in others)), IN_PLACE))
        return Value(len(self.all), value.strides)

    def new(self, size: int, strides: Strides, *reads: Value) -> Value:
        """A call that makes a value and holds nothing else."""
        self.all.append(Call(tuple(value.number for value in reads), Footprint(0, size, size)))
        return Value(len(self.all), strides)

    def held(self, value: Held) -> Value:
        """A value that was made before."""
        return self.new(value.size, value.strides) if value.size else Value(0, value.strides)

    def size(self, value: Value) -> int:
        """Bytes of a value's storage."""
        number = value.number
        while number and not self.all[number - 1].footprint.output:
            number = self.all[number - 1].reads[0]
        return self.all[number - 1].footprint.output if number else 0

    def used(self) -> list[Call]:
        """The calls without those whose values nobody reads: side values of edges that are gone."""
        wanted = {len(self.all)}
        for i in range(len(self.all), 0, -1):
            if i in wanted:
                wanted.update(self.all[i - 1].reads)
        place = {old: new for new, old in enumerate(sorted(wanted - {0}), 1)} | {0: 0}
        return [Call(tuple(place[r] for r in self.all[i - 1].reads), self.all[i - 1].footprint) for i in place if i]


class Parts:
    """The parts of a super network, each measured once per kind, width and memory layout of its input."""

    def __init__(self, net: SuperNetwork, batch: int) -> None:
        self.net, self.batch, graph = net, batch, net.graph
        inputs = net.inputs.tensors(net.inputs.example(batch, "cpu"))
        self.main = inputs[net.inputs.main]
        self.input_bytes = sum(value.numel() * value.element_size() for value in inputs)
        self.prelude = None if net.prelude is None else measured_part(net.prelude.body, inputs)
        with torch.inference_mode():
            self._side_values = () if net.prelude is None else net.prelude.body.cpu().eval()(*inputs)
        self.sides = [module.sides if isinstance(module, Region) else () for module in net.edge_modules]
        self.own = [rewritable(module) for module in net.edge_modules]
        self.relu = [writes_into_input(module) for module in net.activations]
        self.arriving: list[list[int]] = [[] for _ in graph.nodes]
        for number, operation in enumerate(graph.operations):
            self.arriving[operation.target].append(number)
        self._kinds: dict[Hashable, int] = {}
        named = zip(net.edge_modules, (operation.name for operation in graph.operations), strict=True)
        self._operation_kinds = [self._number(kind_of(module, name)) for module, name in named]
        nodes = zip(net.activations, graph.nodes, strict=True)
        self._node_kinds = [self._number(kind_of(module, f"node {name}")) for module, name in nodes]
        self._known: dict[Hashable, Part] = {}
        self._sums: dict[Hashable, Strides] = {}
        main = (tuple(self.main.shape[1:]), self.main.dtype, tuple(self.main.stride()))
        self.stem = self._measured(net.stem, main)

    def _number(self, kind: Hashable) -> int:
        return self._kinds.setdefault(kind, len(self._kinds))

    def lives(self, number: int, live: Sequence[bool]) -> bool:
        """Whether any edge of an operation is live."""
        return any(live[edge] for edge in self.net.graph.operations[number].edges)

    def widths(self, numbers: Sequence[int]) -> Tensor:
        """A matrix (edges × n) by which live gates become what the memory of these operations depends on."""
        columns: list[dict[int, int]] = []
        for number in numbers:
            module, operation = self.net.edge_modules[number], self.net.graph.operations[number]
            if isinstance(module, Region) and operation.bundle and not module.picks:
                units = zip(operation.axes, module.axes, strict=True)
                columns += [dict(zip(edges, axis.sizes, strict=True)) for edges, axis in units]
            else:
                columns += [{edge: 1} for edge in operation.edges]
        matrix = torch.zeros(len(self.net.graph.edges), len(columns), dtype=torch.float64)
        for place, column in enumerate(columns):
            matrix[list(column), place] = torch.tensor(list(column.values()), dtype=torch.float64)
        return matrix

    def operation(self, number: int, keeps: Keeps, strides: Strides) -> Part:
        """What an operation does with these units on a value of this layout."""
        operation, module = self.net.graph.operations[number], self.net.edge_modules[number]
        width = narrowed_kind(module, keeps) if isinstance(module, Region) and operation.bundle else ()
        value = (self.net.shapes.nodes[operation.source], self.net.shapes.dtypes[operation.source], strides)
        key = (self._operation_kinds[number], width, value)
        if key not in self._known:
            beside = [self._side_values[i] for i in self.sides[number]]
            if isinstance(module, Region):
                module = module.narrow(keeps) if operation.bundle else module.body
            self._known[key] = self._measured(module, value, beside)
        return self._known[key]

    def activation(self, node: int, strides: Strides) -> Part:
        """What the activation of a node does on a sum of this layout."""
        value = (self.net.shapes.sums[node], self.net.shapes.dtypes[node], strides)
        key = (self._node_kinds[node], value)
        if key not in self._known:
            self._known[key] = self._measured(self.net.activations[node], value)
        return self._known[key]

    def head(self, strides: Strides) -> Part:
        """What the head does on a value of this layout."""
        key = ("head", strides)
        if key not in self._known:
            value = (self.net.shapes.nodes[-1], self.net.shapes.dtypes[-1], strides)
            self._known[key] = self._measured(self.net.head, value)
        return self._known[key]

    def _measured(
        self, module: nn.Module, value: tuple[tuple[int, ...], torch.dtype, Strides], sides: Sequence[Tensor] = ()
    ) -> Part:
        shape, dtype, strides = value
        if isinstance(module, nn.Identity):
            return Part(1, 0, (), (1,), (strides,))
        size = (self.batch, *shape)
        numbers = 1 + sum((length - 1) * stride for length, stride in zip(size, strides, strict=True))
        return measured_part(module, [torch.zeros(numbers, dtype=dtype).as_strided(size, strides), *sides])

    def contiguous(self, node: int, summed: bool = False) -> Strides:
        """The strides of a node's value, or sum, as a new tensor has them."""
        shape = (self.net.shapes.sums if summed else self.net.shapes.nodes)[node]
        return tuple(torch.empty((self.batch, *shape), device="meta").stride())

    def value_bytes(self, node: int) -> int:
        """Bytes of a node's value."""
        return self.batch * math.prod(self.net.shapes.nodes[node]) * self.net.shapes.dtypes[node].itemsize

    def sum_bytes(self, node: int) -> int:
        """Bytes of a node's sum."""
        return self.batch * math.prod(self.net.shapes.sums[node]) * self.net.shapes.dtypes[node].itemsize

    def added(self, node: int, one: Strides, other: Strides) -> Strides:
        """The layout of a sum of two values at a node."""
        if one == other:
            return one
        shape = (self.batch, *self.net.shapes.sums[node])
        key = (shape, one, other)
        if key not in self._sums:
            first, second = (torch.empty_strided(shape, strides, device="meta") for strides in (one, other))
            self._sums[key] = tuple((first + second).stride())
        return self._sums[key]
