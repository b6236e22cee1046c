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
from torch import Tensor, fx

from budgetnet.costs import accelerators
from budgetnet.costs.base import Cost, least_path
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.footprints import Part, peak, run_peak
from budgetnet.costs.parts import Calls, Held, Parts, Value
from budgetnet.costs.target_memory import TargetMemory
from budgetnet.errors import UserError
from budgetnet.network.executor.sums import add_up
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

COMPARED = 2
"""Networks that a refresh runs for real: each takes a few milliseconds, and the analysis is exact or nearly so."""
MOST_EXAMPLES = 2**16
"""The largest batch; a larger one is a typing error, and would fill the memory that is to be measured."""


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
    value: Held | None


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
    def _parts(self) -> Parts:
        return Parts(self.net, self.batch)

    def _of(self, live: Sequence[bool]) -> float:
        """Bytes at the peak of one row."""
        return float(self.evaluate(torch.tensor([live], dtype=torch.bool))[0])

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """The nodes between values that all paths pass, and what their memory depends on; one with side values."""
        operations, last = self.graph.operations, len(self.graph.nodes) - 1
        inner = {node for each in operations for node in range(each.source + 1, each.target)}
        together = self._parts.prelude is not None and bool(self._parts.prelude.outputs)
        ends = [last] if together else [node for node in range(1, last + 1) if node not in inner]
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

    def _bounds(self, nodes: range, entry: Held | None, live: Sequence[bool]) -> _Bounds:
        """The calls of the extracted network at these nodes, in its order, and their peak; stem and head too."""
        graph, found, calls = self.graph, self._parts, Calls()
        prelude = found.prelude if entry is None else None
        sides = calls.add(prelude, [Value(0, ())] * len(self.net.inputs.names)) if prelude else []
        state = prelude.state if prelude else 0
        first = calls.add(found.stem, [Value(0, ())])[0] if entry is None else calls.held(entry)
        values: dict[int, Value] = {nodes.start - 1: first}
        for node in nodes:
            numbers = [number for number in found.arriving[node] if found.lives(number, live)]
            terms: list[Value] = []
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
        else:
            last = calls.write(last)  # nothing is held but what is read, and this is read later
        highest = peak(calls.used() if found.prelude else calls.all)
        return _Bounds(state, highest, Held(last.strides, calls.size(last)))

    def _sum(self, calls: Calls, node: int, terms: Sequence[Value], own: Sequence[bool]) -> tuple[Value, bool]:
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


def _alone(part: Part) -> int:
    """The peak of a part whose inputs the caller keeps."""
    calls = Calls()
    calls.add(part, [Value(0, ())] * part.inputs)
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
