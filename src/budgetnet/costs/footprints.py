"""The memory of single calls: what each allocates and gives, found by running every kind of module once.

The peak of a network is then a matter of liveness: a value lives from the call that makes it to the last that reads it.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._pytree import tree_leaves

from budgetnet.costs.latency.timing import no_collection, torch_threads


class Footprint(NamedTuple):
    """Bytes of a call.

    Attributes:
        state: Parameters and buffers.
        peak: The most that the call holds besides what it reads.
        output: What it gives; 0 if that is the first value that it reads, or a view of it.
    """

    state: int
    peak: int
    output: int


class Call(NamedTuple):
    """One call of a network.

    Attributes:
        reads: The values that it reads. Value 0 is what the caller keeps; call i makes value i + 1.
        footprint: What it holds and gives.
    """

    reads: tuple[int, ...]
    footprint: Footprint


class Part(NamedTuple):
    """The calls of a module, or of a graph that an extracted network has inlined.

    Attributes:
        inputs: How many inputs it has.
        state: Bytes of parameters and buffers.
        calls: The calls; values 1 to n are the n inputs of the part, its own calls make the values after them.
        outputs: The values that it gives.
        strides: The memory layout of each output, on which the work of those who read it depends.
    """

    inputs: int
    state: int
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


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
        for value in {owner[value] for value in (*call.reads, i + 1)}:
            if value and last.get(value, i) == i:
                held -= calls[value - 1].footprint.output
    return max(highest, held)


def measured_part(module: nn.Module, inputs: Sequence[Tensor]) -> Part:
    """Runs a module once and notes what each of its calls allocates.

    Args:
        module: A graph, whose nodes are the calls, or any other module, which is one call.
        inputs: Its inputs, in the memory layout that they will have.

    Returns:
        The calls; of a graph, with the values that each reads.
    """
    graph = module if isinstance(module, fx.GraphModule) else _one_call(module)
    state = state_bytes(graph)
    recorder = _Recorder(copy.deepcopy(graph).cpu().eval())
    with torch_threads(1), torch.inference_mode():
        recorder.run(*inputs)
        recorder.values.clear()
        recorder.env.clear()
        events = _events(lambda: recorder.run(*inputs))
    return _part(recorder, state, _peaks(events))


def state_bytes(module: nn.Module) -> int:
    """Bytes of parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in [*module.parameters(), *module.buffers()])


def run_peak(network: nn.Module, *inputs: Tensor) -> int:
    """The same bytes from a real run: what torch's allocator handed out at the peak, with state and input."""
    with torch_threads(1), torch.inference_mode():
        network(*(value.clone() for value in inputs))
        allocated = allocated_peak(lambda: network(*inputs))
    return allocated + state_bytes(network) + sum(value.numel() * value.element_size() for value in inputs)


def allocated_peak(run: Callable[[], object]) -> int:
    """The most bytes that torch's allocator held while something ran, above what it held before."""
    return _highest(event.nbytes() for event in _events(run) if event.name() == MEMORY)


MEMORY = "[memory]"
"""What torch's profiler calls an allocation (bytes above zero) or a release (below zero)."""
CALL = "budgetnet call "
"""Begins the name of the profiler's entry for a call; its number follows."""


class _Recorder(fx.Interpreter):
    """Runs a graph, keeps all values, and leaves an entry in the profile for each call."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Runs a node inside an entry of its own."""
        with record_function(f"{CALL}{len(self.values)}"):
            self.values[n] = super().run_node(n)
        return self.values[n]


def _one_call(module: nn.Module) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(graph.call_module("module", (graph.placeholder("x"),)))
    return fx.GraphModule({"module": module}, graph)


def _part(recorder: _Recorder, state: int, peaks: Sequence[int]) -> Part:
    """The calls of a recorded run; storages tell which outputs are views of earlier values."""
    number: dict[fx.Node, int] = {}
    tensors = [*recorder.module.parameters(), *recorder.module.buffers()]
    owner = {tensor.untyped_storage().data_ptr(): 0 for tensor in tensors}
    calls: list[Call] = []
    entries = 0
    for (node, value), highest in zip(recorder.values.items(), peaks, strict=True):
        storages = _storages(value)
        if node.op == "placeholder":
            entries += 1
            number[node] = entries
        elif node.op == "get_attr":
            number[node] = 0
        elif node.op == "output":
            break
        else:
            reads = tuple(dict.fromkeys(number[read] for read in node.all_input_nodes))
            fresh = {pointer: size for pointer, size in storages.items() if pointer not in owner}
            size = sum(fresh.values())
            known = [owner[pointer] for pointer in storages if pointer in owner]
            first = reads[:1] if size else (known[0] if known else 0,)
            number[node] = entries + len(calls) + 1
            calls.append(Call((*first, *(r for r in reads if r not in first)), Footprint(0, max(highest, size), size)))
        for pointer in storages:
            owner.setdefault(pointer, number[node])
    given = recorder.graph.output_node().args[0]
    outputs = tuple(given) if isinstance(given, tuple | list) else (given,)
    layouts = tuple(_layout(recorder.values[node]) for node in outputs)
    return Part(entries, state, tuple(calls), tuple(number[node] for node in outputs), layouts)


def _layout(value: Any) -> tuple[int, ...]:
    return tuple(value.stride()) if isinstance(value, Tensor) else ()


def _storages(value: Any) -> dict[int, int]:
    """The storages of the tensors in a value, with their bytes."""
    tensors = [leaf.untyped_storage() for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in tensors if storage.nbytes()}


def _peaks(events: Sequence[Any]) -> list[int]:
    """For each call in a profile, the most bytes that were allocated within it at a time."""
    calls = sorted((e for e in events if e.name().startswith(CALL)), key=lambda e: int(e.name().removeprefix(CALL)))
    memory = [event for event in events if event.name() == MEMORY]
    return [_highest(e.nbytes() for e in memory if call.start_ns() <= e.start_ns() <= call.end_ns()) for call in calls]


def _highest(changes: Iterator[int]) -> int:
    held = highest = 0
    for change in changes:
        held += change
        highest = max(highest, held)
    return highest


def _events(run: Callable[[], object]) -> list[Any]:
    """What torch's profiler saw while something ran, in the order of time."""
    with (
        _silent_profiler(),
        no_collection(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        output = run()
    del output
    recorded = profiler.profiler
    assert recorded is not None
    assert recorded.kineto_results is not None
    wanted = [e for e in recorded.kineto_results.events() if e.name() == MEMORY or e.name().startswith(CALL)]
    return sorted(wanted, key=lambda event: event.start_ns())


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
