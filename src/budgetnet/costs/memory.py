"""`peak_memory`: the largest sum of live activations over the execution order, plus parameters and the input.

By analysis of the extracted network's order: a value lives from the call that makes it to the last one that reads it.
What a module allocates within its call, workspaces of convolutions too, is found once per kind of module by running it.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.profiler import ProfilerActivity, profile

from budgetnet.costs.base import Cost, least_path, refuse_bundles
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.latency.timing import torch_threads
from budgetnet.errors import UserError
from budgetnet.export.pieces import signature
from budgetnet.network.executor.sums import add_up, writes_into_input
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork, rewritable

COMPARED = 2
"""Networks that a refresh runs for real."""


class Footprint(NamedTuple):
    """Bytes of a module: its state, the most that a call holds besides its input, its output (0: it is the input)."""

    state: int
    peak: int
    output: int


class Call(NamedTuple):
    """One call of an extracted network: the values that it reads, and what it holds and gives."""

    reads: tuple[int, ...]
    footprint: Footprint


def peak(calls: Sequence[Call]) -> int:
    """The most bytes held at a time. Value 0 is the input, which the caller keeps; call i makes value i + 1.

    A value is held until the last call that reads it returns; one that is its own input is held as that input.
    """
    owner = [0]
    for call in calls:
        owner.append(len(owner) if call.footprint.output else owner[call.reads[0]])
    last = {owner[value]: i for i, call in enumerate(calls) for value in call.reads}
    last[owner[-1]] = len(calls)
    held = highest = 0
    for i, call in enumerate(calls):
        highest = max(highest, held + call.footprint.peak)
        held += call.footprint.output
        for value in {owner[value] for value in call.reads}:
            if value and last[value] == i:
                held -= calls[value - 1].footprint.output
    return max(highest, held)


class PeakMemory(Cost):
    """The analysis for every architecture of a super network."""

    measured = True

    def __init__(self, net: SuperNetwork, batch: int) -> None:
        super().__init__(net.graph)
        refuse_bundles(net, "peak_memory")
        self.net, self.batch = net, batch

    def evaluate(self, live: Tensor) -> Tensor:
        """Bytes at the peak, for each row of live gates."""
        return torch.tensor([self._of(row) for row in live.tolist()], dtype=torch.float64)

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
        if bool(graph.fixed.any()):
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

    @cached_property
    def _footprints(self) -> _Footprints:
        return _footprints(self.net, self.batch)

    def _evidence(self, architecture: Architecture, network: fx.GraphModule) -> Evidence:
        analysis = self(architecture)
        images = torch.zeros((self.batch, *self.net.input_shape), dtype=self.net.input_dtype)
        real = float(run_peak(network.cpu().eval(), images))
        how = {
            "method": "liveness analysis, and a real run",
            "analysis": analysis,
            "real_run": real,
            "batch": self.batch,
        }
        return Evidence(analysis, max(analysis, real), how)

    def _step(self, edge: int) -> int:
        """The most that an edge and the activation after it hold on a path."""
        found, source, target = self._footprints, self.net.graph.sources[edge], self.net.graph.targets[edge]
        after = 0 if found.own[edge] and found.relu[target] else found.activations[target].peak
        return max(found.values[source] + found.edges[edge].peak, found.additions[target].output + after)

    def _state(self, edge: int) -> int:
        return self._footprints.edges[edge].state + self._footprints.activations[self.net.graph.targets[edge]].state

    def _of(self, live: Sequence[bool]) -> float:
        """The calls of the extracted network, in its order, and their peak."""
        graph, found = self.net.graph, self._footprints
        state = found.input + found.stem.state + found.head.state
        calls: list[Call] = []

        def call(footprint: Footprint, *reads: int) -> int:
            if footprint is NOTHING:
                return reads[0]
            calls.append(Call(reads, footprint))
            return len(calls)

        values = [call(found.stem, 0)] * len(graph.nodes)
        for node, incoming in enumerate(graph.incoming):
            kept = [edge for edge in incoming if live[edge]]
            terms = [call(found.edges[edge], values[graph.sources[edge]]) for edge in kept]
            if terms:
                order, written, fresh = add_up([found.own[edge] for edge in kept])
                total = terms[order[0]]
                for term in order[1:]:
                    total, written = call(IN_PLACE if written else found.additions[node], total, terms[term]), True
                values[node] = call(IN_PLACE if fresh and found.relu[node] else found.activations[node], total)
                state += found.activations[node].state + sum(found.edges[edge].state for edge in kept)
        call(found.head, values[-1])
        return float(state + peak(calls))


MOST_EXAMPLES = 2**16


def peak_memory(net: SuperNetwork, batch: int = 1) -> PeakMemory:
    """Bytes that a forward pass of the extracted network holds at its peak, on one thread: values, state and input."""
    if not 1 <= batch <= MOST_EXAMPLES:
        raise UserError(f"batch={batch} cannot be run; use 1 to {MOST_EXAMPLES}")
    return PeakMemory(net, batch)


NOTHING = Footprint(0, 0, 0)
"""An identity, which the extracted network does not call."""
IN_PLACE = Footprint(0, 0, 0)
"""A call that writes into the first value that it reads."""


@dataclass(frozen=True)
class _Footprints:
    input: int
    stem: Footprint
    edges: tuple[Footprint, ...]
    additions: tuple[Footprint, ...]
    activations: tuple[Footprint, ...]
    values: tuple[int, ...]
    head: Footprint
    own: tuple[bool, ...]
    """Edges whose output is nobody else's, so that sums and activations are written into it."""
    relu: tuple[bool, ...]
    """Nodes whose activation can be written into its input."""


def _footprints(net: SuperNetwork, batch: int) -> _Footprints:
    """Runs every kind of module once."""
    known: dict[Hashable, Footprint] = {}
    shapes = net.shapes

    def of(module: nn.Module, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Footprint:
        key = (signature(module) or name, shape, dtype)
        if key not in known:
            known[key] = _footprint(module, torch.zeros((batch, *shape), dtype=dtype))
        return known[key]

    def size(shape: tuple[int, ...], dtype: torch.dtype) -> int:
        return batch * math.prod(shape) * dtype.itemsize

    nodes = list(zip(net.graph.nodes, shapes.sums, shapes.dtypes, strict=True))
    return _Footprints(
        size(net.input_shape, net.input_dtype),
        of(net.stem, "stem", net.input_shape, net.input_dtype),
        tuple(
            of(module, edge.name, shapes.nodes[source], shapes.dtypes[source])
            for module, edge, source in zip(net.edge_modules, net.graph.edges, net.graph.sources, strict=True)
        ),
        tuple(Footprint(0, size(shape, dtype), size(shape, dtype)) for _, shape, dtype in nodes),
        tuple(of(module, *node) for module, node in zip(net.activations, nodes, strict=True)),
        tuple(size(shape, dtype) for shape, dtype in zip(shapes.nodes, shapes.dtypes, strict=True)),
        of(net.head, "head", shapes.nodes[-1], shapes.dtypes[-1]),
        tuple(rewritable(module) for module in net.edge_modules),
        tuple(writes_into_input(module) for module in net.activations),
    )


def _footprint(module: nn.Module, x: Tensor) -> Footprint:
    if isinstance(module, nn.Identity):
        return NOTHING
    state = state_bytes(module)
    run = copy.deepcopy(module).cpu().eval()
    with torch.inference_mode():
        output = run(x)
    is_input = output.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    size = 0 if is_input else output.untyped_storage().nbytes()
    return Footprint(state, max(_allocated(run, x), size), size)


def state_bytes(module: nn.Module) -> int:
    """Bytes of parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()])


def run_peak(network: nn.Module, images: Tensor) -> int:
    """The same bytes from a real run: what torch's allocator handed out at the peak, with state and input."""
    return _allocated(network, images) + state_bytes(network) + images.numel() * images.element_size()


def _allocated(module: nn.Module, x: Tensor) -> int:
    """The most bytes allocated at a time during a call, by torch's own profiler; the first call is to warm up."""
    with torch_threads(1), torch.inference_mode():
        module(x.clone())
        return allocated_peak(lambda: module(x))


def allocated_peak(run: Callable[[], object]) -> int:
    """The most bytes that torch's allocator held while something ran, above what it held before."""
    with _silent_profiler(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        output = run()
    del output
    recorded = profiler.profiler
    assert recorded is not None
    assert recorded.kineto_results is not None
    events = [event for event in recorded.kineto_results.events() if event.name() == "[memory]"]
    held = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        highest = max(highest, held)
    return highest


@contextlib.contextmanager
def _silent_profiler() -> Iterator[None]:
    """The profiler's library writes lines about itself to standard error, unless told before its first use."""
    name = "KINETO_LOG_LEVEL"
    before = os.environ.get(name)
    os.environ.setdefault(name, "99")
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
