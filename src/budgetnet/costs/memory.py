"""`peak_memory`: the largest sum of live activations over the execution order, plus parameters and the input.

By analysis of the extracted network's order: a value lives from the call that makes it to the last one that reads it.
What a call allocates, workspaces of convolutions too, is found once per kind of module, and of a bundle once per width,
by running it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from budgetnet.costs import accelerators
from budgetnet.costs.base import Cost, least_path
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.footprints import Call, Footprint, Part, measured_part, peak, run_peak
from budgetnet.costs.kinds import kind_of, narrowed_kind
from budgetnet.costs.target_memory import TargetMemory
from budgetnet.errors import UserError
from budgetnet.network.axes import Keeps
from budgetnet.network.executor.sums import add_up, writes_into_input
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork, rewritable

COMPARED = 2
"""Networks that a refresh runs for real: each takes a few milliseconds, and the analysis is exact or nearly so."""
MOST_EXAMPLES = 2**16
"""The largest batch; a larger one is a typing error, and would fill the memory that is to be measured."""

IN_PLACE = Footprint(0, 0, 0)
"""A call that writes into the first value that it reads."""

Strides = tuple[int, ...]


class _Value(NamedTuple):
    """A value of the network under analysis: its number among the calls' values, and its memory layout."""

    number: int
    strides: Strides


class _Held(NamedTuple):
    """A value that a stretch begins with: its memory layout, and the bytes of its storage; 0 for the caller's input."""

    strides: Strides
    size: int


class _Stretch(NamedTuple):
    """Nodes between two values that all paths pass; with nothing else held at either, its memory is its own affair.

    Attributes:
        nodes: Those after the first value, up to the second.
        widths: Times live gates: equal for architectures in which the stretch has the same memory (edges × numbers).
    """

    nodes: range
    widths: Tensor


class _Bounds(NamedTuple):
    """What a stretch needs: bytes of its state, the peak of its calls, and the value that it ends with."""

    state: int
    peak: int
    value: _Held | None


class PeakMemory(Cost):
    """The analysis for every architecture of a super network.

    Args:
        net: The super network.
        batch: How many examples the extracted network is given at once.
        device: The accelerator whose counters a real run is bounded by; the processor's allocator if not given.
    """

    measured = True

    def __init__(self, net: SuperNetwork, batch: int, device: str = "") -> None:
        super().__init__(net.graph)
        self.net, self.batch, self.device = net, batch, device
        self._known: dict[Hashable, _Bounds] = {}

    def evaluate(self, live: Tensor) -> Tensor:
        """Bytes at the peak, for each row of live gates."""
        kept = live.double()
        codes = [(kept @ stretch.widths).int().numpy() for stretch in self._stretches]
        keys = [[row.tobytes() for row in code] for code in codes]
        rows = zip(live.tolist(), zip(*keys, strict=True), strict=True)
        return torch.tensor([self._along(row, key) for row, key in rows], dtype=torch.float64)

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """The analysis, bounded by the larger of it and a real run."""
        return self._evidence(architecture, extract(self.net, architecture))

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """The same, on the network that is handed over."""
        return self._evidence(deliverable.architecture, deliverable.network)

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """The error of the analysis on a few of these networks. There is nothing to fit."""
        found = [self.evidence(self.net.graph.architecture(row)) for row in live[live.any(1)][:COMPARED]]
        errors = [abs(e.how["analysis"] / e.how["real_run"] - 1) for e in found]
        return {"error": math.fsum(errors) / len(errors)} if errors else {}

    def smallest(self) -> Architecture | None:
        """The exact minimum. Edges only add, so it is a path: for each bound on a step, the path of least state."""
        graph = self.net.graph
        if bool(graph.fixed.any()) or graph.bundles:
            return least_path(graph, [1.0] * len(graph.edges))
        step = [self._step(edge) for edge in range(len(graph.edges))]
        best: tuple[float, list[int]] = (math.inf, [])
        for limit in sorted(set(step)):
            weights = [float(self._state(e)) if needed <= limit else math.inf for e, needed in enumerate(step)]
            path = graph.shortest_path(weights)
            gates = [False] * len(graph.edges)
            for edge in path:
                gates[edge] = True
            best = min(best, (self._of(gates), path), key=lambda pair: pair[0])
        return Architecture(graph, frozenset(graph.edges[edge].name for edge in best[1]))

    def _evidence(self, architecture: Architecture, network: fx.GraphModule) -> Evidence:
        analysis = self(architecture)
        inputs = self.net.inputs.tensors(self.net.inputs.example(self.batch, "cpu"))
        network = network.cpu().eval()
        counted = accelerators.peak(network, inputs, self.device) if self.device else run_peak(network, *inputs)
        real = float(counted)
        how: dict[str, Any] = {
            "method": "liveness analysis, and a real run",
            "analysis": analysis,
            "real_run": real,
            "batch": self.batch,
            **(accelerators.about(self.device) if self.device else {}),
        }
        return Evidence(analysis, max(analysis, real), how)

    def _step(self, edge: int) -> int:
        """The most that an edge and the activation after it hold on a path."""
        found, source, target = self._parts, self.graph.sources[edge], self.graph.targets[edge]
        part = found.operation(edge, (), found.contiguous(source))
        written = found.own[edge] and found.relu[target]
        after = 0 if written else _alone(found.activation(target, found.contiguous(target, summed=True)))
        return max(found.value_bytes(source) + _alone(part), found.sum_bytes(target) + after)

    def _state(self, edge: int) -> int:
        found, source, target = self._parts, self.graph.sources[edge], self.graph.targets[edge]
        after = found.activation(target, found.contiguous(target, summed=True))
        return found.operation(edge, (), found.contiguous(source)).state + after.state

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts(self.net, self.batch)

    def _of(self, live: Sequence[bool]) -> float:
        """Bytes at the peak of one row."""
        return float(self.evaluate(torch.tensor([live], dtype=torch.bool))[0])

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """The nodes between values that all paths pass, and what their memory depends on; one if there are side values."""
        operations, last = self.graph.operations, len(self.graph.nodes) - 1
        inner = {node for each in operations for node in range(each.source + 1, each.target)}
        ends = [last] if self._parts.prelude else [node for node in range(1, last + 1) if node not in inner]
        found = []
        for before, end in itertools.pairwise([0, *ends]):
            numbers = [number for number, each in enumerate(operations) if before < each.target <= end]
            found.append(_Stretch(range(before + 1, end + 1), self._parts.widths(numbers)))
        return found

    def _along(self, live: Sequence[bool], keys: Sequence[bytes]) -> float:
        """State and peak of one row: of each stretch once for all rows that keep the same of it."""
        found = self._parts
        bounds = _Bounds(found.stem.state + found.input_bytes, 0, None)
        state, highest = bounds.state, 0
        for number, (stretch, key) in enumerate(zip(self._stretches, keys, strict=True)):
            known = (number, key, bounds.value)
            if known not in self._known:
                self._known[known] = self._bounds(stretch.nodes, bounds.value, live)
            bounds = self._known[known]
            state, highest = state + bounds.state, max(highest, bounds.peak)
        return float(state + highest)

    def _bounds(self, nodes: range, entry: _Held | None, live: Sequence[bool]) -> _Bounds:
        """The calls of the extracted network at these nodes, in its order, and their peak; first and last ones besides."""
        graph, found, calls = self.graph, self._parts, _Calls()
        prelude = found.prelude if entry is None else None
        sides = calls.add(prelude, [_Value(0, ())] * len(self.net.inputs.names)) if prelude else []
        state = prelude.state if prelude else 0
        first = calls.add(found.stem, [_Value(0, ())])[0] if entry is None else calls.held(entry)
        values: dict[int, _Value] = {nodes.start - 1: first}
        for node in nodes:
            numbers = [number for number in found.arriving[node] if found.lives(number, live)]
            terms: list[_Value] = []
            for number in numbers:
                operation, source = graph.operations[number], values[graph.operations[number].source]
                keeps = tuple(tuple(live[edge] for edge in axis) for axis in operation.axes)
                part = found.operation(number, keeps, source.strides)
                terms += calls.add(part, [source, *(sides[i] for i in found.sides[number])])
                state += part.state
            if not terms:
                continue
            total, fresh = self._sum(calls, node, terms, [found.own[number] for number in numbers])
            after = found.activation(node, total.strides)
            state += after.state
            written = fresh and found.relu[node]
            values[node] = calls.write(total) if written else calls.add(after, [total])[0]
        last = values[nodes.stop - 1]
        if nodes.stop == len(graph.nodes):
            head = found.head(last.strides)
            state += head.state
            calls.add(head, [last])
        all_calls = calls.used() if prelude else calls.all
        return _Bounds(state, peak(all_calls), _Held(last.strides, calls.size(last)))

    def _sum(self, calls: _Calls, node: int, terms: Sequence[_Value], own: Sequence[bool]) -> tuple[_Value, bool]:
        """The sum of terms as the extracted network adds them, and whether nobody else reads it."""
        order, written, fresh = add_up(own)
        total = terms[order[0]]
        for term in order[1:]:
            if written:
                total = calls.write(total, terms[term])
            else:
                strides = self._parts.added(node, total.strides, terms[term].strides)
                total = calls.new(self._parts.sum_bytes(node), strides, total, terms[term])
            written = True
        return total, fresh


class _Calls:
    """The calls of an extracted network, as they are put together."""

    def __init__(self) -> None:
        self.all: list[Call] = []

    def add(self, part: Part, inputs: Sequence[_Value]) -> list[_Value]:
        """The calls of a part on these inputs; the values that it gives."""
        begin, count = len(self.all), len(inputs)

        def number(value: int) -> int:
            if value > count:
                return begin + value - count
            return inputs[value - 1].number if value else 0

        self.all += [Call(tuple(map(number, call.reads)), call.footprint) for call in part.calls]
        return [_Value(number(output), strides) for output, strides in zip(part.outputs, part.strides, strict=True)]

    def write(self, value: _Value, *others: _Value) -> _Value:
        """A call that writes into a value."""
        self.all.append(Call((value.number, *(other.number for other in others)), IN_PLACE))
        return _Value(len(self.all), value.strides)

    def new(self, size: int, strides: Strides, *reads: _Value) -> _Value:
        """A call that makes a value and holds nothing else."""
        self.all.append(Call(tuple(value.number for value in reads), Footprint(0, size, size)))
        return _Value(len(self.all), strides)

    def held(self, value: _Held) -> _Value:
        """A value that was made before."""
        return self.new(value.size, value.strides) if value.size else _Value(0, value.strides)

    def size(self, value: _Value) -> int:
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


class _Parts:
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
        columns = []
        for number in numbers:
            module, operation = self.net.edge_modules[number], self.net.graph.operations[number]
            by_width = isinstance(module, Region) and operation.bundle and not module.picks
            for place, axis in enumerate(operation.axes):
                sizes = module.axes[place].sizes if by_width else ()
                columns += [dict(zip(axis, sizes, strict=True))] if by_width else [{edge: 1} for edge in axis]
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


def _alone(part: Part) -> int:
    """The peak of a part whose inputs the caller keeps."""
    calls = _Calls()
    calls.add(part, [_Value(0, ())] * part.inputs)
    return peak(calls.all)


def peak_memory(net: SuperNetwork, batch: int = 1, target: str = "", device: str = "") -> Cost:
    """Bytes that a forward pass of the extracted network holds at its peak, on one thread: values, state and input.

    Args:
        net: The super network.
        batch: How many examples it is given at once.
        target: The address of a meter, `http://host:8700`, if a device is to measure what its exported file takes.
        device: The accelerator, such as cuda, whose own counters a real run is measured by.

    Returns:
        The cost.
    """
    if not 1 <= batch <= MOST_EXAMPLES:
        raise UserError(f"batch={batch} cannot be run; use 1 to {MOST_EXAMPLES}")
    if device and target:
        raise UserError(f"device={device} and target={target} are both given; leave one of them out")
    if device:
        accelerators.check_device(device)
    analysis = PeakMemory(net, batch, device)
    return TargetMemory(net, analysis, target, batch) if target else analysis
