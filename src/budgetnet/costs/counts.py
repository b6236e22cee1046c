"""Costs that add up over live edges and nodes: multiply-adds, parameters, bytes of state; no numbers are computed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from budgetnet.costs.base import Cost
from budgetnet.errors import UserError
from budgetnet.export.reasons import reason
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.supernet import SuperNetwork, example, on_meta

ACCOUNTINGS = ("true", "paper")

_FREE = """
_native_batch_norm_legit _native_batch_norm_legit_no_training native_batch_norm cudnn_batch_norm miopen_batch_norm
batch_norm_update_stats _batch_norm_with_update _batch_norm_no_update
relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ gelu silu silu_ mish hardswish hardswish_ hardsigmoid hardsigmoid_
hardtanh hardtanh_ sigmoid sigmoid_ tanh tanh_ softplus threshold _prelu_kernel celu selu log_sigmoid_forward clamp
clamp_min clamp_
max_pool1d max_pool2d max_pool2d_with_indices max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d
adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d mean
upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_bicubic2d
_upsample_nearest_exact2d
view _unsafe_view reshape permute transpose t expand squeeze unsqueeze slice select split split_with_sizes chunk
unbind cat stack clone detach alias contiguous _to_copy copy_ constant_pad_nd unfold flatten
empty empty_like new_empty zeros new_zeros zeros_like full
"""
FREE = frozenset(_FREE.split())
"""Operations that macs does not charge: batch norm, activations, pooling, resizing, and moving data about."""


SUMS = frozenset(("add", "add_"))
"""Operations that add up two values: one multiply-add for each number, if the values have equal shapes."""


@dataclass(eq=False)
class AdditiveCost(Cost):
    """`base` + the sum over live edges + the sum over live nodes; a vector product for many architectures at once."""

    graph: Graph
    base: float
    edges: Tensor
    nodes: Tensor
    uncounted: tuple[str, ...] = ()
    counter: Callable[[fx.GraphModule], float] | None = None
    """Counts the same cost on an extracted network, which knows nothing of edges and nodes."""

    def evaluate(self, live: Tensor) -> Tensor:
        """The cost of each row of live gates (n × edges), float64."""
        node_live = torch.stack([live[:, ends].any(1) for ends in self.graph.incoming[1:]], 1)
        return self.base + live.double() @ self.edges + node_live.double() @ self.nodes[1:]

    def recount(self, network: fx.GraphModule) -> float | None:
        """The cost of an extracted network, counted on its modules."""
        return None if self.counter is None else float(self.counter(network))

    def smallest(self) -> Architecture:
        """The cheapest connected architecture, exactly: costs are not negative, so it is a single path."""
        weights = self.edges + self.nodes[torch.tensor(self.graph.targets)]
        path = self.graph.shortest_path(weights.tolist())
        return Architecture(self.graph, frozenset(self.graph.edges[i].name for i in path))


def macs(net: SuperNetwork, accounting: str = "true") -> AdditiveCost:
    """Multiply-adds of one example: convolutions, linear layers, and sums of n inputs as n − 1 each.

    Free: bias, batch norm, activation, pooling, resize, identity. `paper` charges up-sampling at its input's size.
    """
    if accounting not in ACCOUNTINGS:
        raise UserError(f"accounting {accounting!r} does not exist; use {' or '.join(ACCOUNTINGS)}")
    graph, shapes = net.graph, net.shapes
    counter = _Counter()
    base = counter.count(net.stem, net.input_shape, net.input_dtype)
    base += counter.count(net.head, shapes.nodes[-1], shapes.dtypes[-1])
    sums = torch.tensor([float(math.prod(shape)) for shape in shapes.sums], dtype=torch.float64)
    edges = sums[torch.tensor(graph.targets)]
    for i, module in enumerate(net.edge_modules):
        source, target = graph.sources[i], graph.targets[i]
        count = counter.count(module, shapes.nodes[source], shapes.dtypes[source])
        if accounting == "paper":
            before, after = _pixels(shapes.nodes[source]), _pixels(shapes.sums[target])
            count = count * min(before, after) / after
        edges[i] += count
    nodes = -sums
    for i, module in enumerate(net.activations):
        nodes[i] += counter.count(module, shapes.sums[i], shapes.dtypes[i])
    recount = partial(_macs_of, shape=net.input_shape, dtype=net.input_dtype) if accounting == "true" else None
    return AdditiveCost(graph, base, edges, nodes, counter.uncounted, recount)


def params(net: SuperNetwork) -> AdditiveCost:
    """Trainable numbers: weights, biases, batch-norm scale and shift."""
    return _per_module(net, lambda module: sum(p.numel() for p in module.parameters()))


def size(net: SuperNetwork) -> AdditiveCost:
    """Bytes of the extracted network's state as saved: parameters and buffers, without the file's header."""
    return _per_module(net, lambda module: sum(v.numel() * v.element_size() for v in module.state_dict().values()))


def _per_module(net: SuperNetwork, measure: Callable[[nn.Module], float]) -> AdditiveCost:
    def vector(modules: Iterable[nn.Module]) -> Tensor:
        return torch.tensor([float(measure(module)) for module in modules], dtype=torch.float64)

    base = float(measure(net.stem) + measure(net.head))
    return AdditiveCost(net.graph, base, vector(net.edge_modules), vector(net.activations), counter=measure)


def _macs_of(network: fx.GraphModule, shape: tuple[int, ...], dtype: torch.dtype) -> float:
    """What the modules of an extracted network multiply and add, and the sums between them."""
    additions = _Additions(copy.deepcopy(network).to("meta").eval())
    with torch.no_grad():
        additions.run(example(shape, dtype))
    return _Counter().count(network, shape, dtype) + additions.total


@dataclass(frozen=True)
class Count:
    """What `count` found.

    Attributes:
        macs: Multiply-adds of one example: convolutions, matrix products and sums of two values of equal shape.
        params: Numbers in the parameters, each counted once.
        uncounted: Operations that are neither counted nor known to be free, by name.
    """

    macs: float
    params: int
    uncounted: tuple[str, ...]


def count(model: nn.Module, example_inputs: Any) -> Count:
    """Counts the multiply-adds and parameters of any module by running it once, in eval mode.

    Args:
        model: Any module; it is left as it was.
        example_inputs: A tensor, a tuple of positional arguments, or a mapping of named ones. The first dimension of
            the first tensor among them is the batch, by which the multiply-adds are divided.

    Returns:
        The counts, and the operations that were not counted.
    """
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    inputs = () if named else example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    tensors = [value for value in (*inputs, *named.values()) if isinstance(value, Tensor) and value.dim()]
    if not tensors or not len(tensors[0]):
        raise UserError("count needs example inputs with a tensor whose first dimension is a batch of 1 or more")
    counter, training = _Counter(sums=True), [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad(), counter:
            model(*inputs, **named)
    except Exception as error:  # a user's model may raise anything
        raise UserError(
            f"the model cannot be run on the example inputs: {reason(error)}; correct one of them"
        ) from error
    finally:
        for module in training:
            module.training = True
    params = sum(parameter.numel() for parameter in model.parameters())
    return Count(counter.total / len(tensors[0]), params, counter.uncounted)


class _Additions(fx.Interpreter):
    """Counts the numbers that the sums between modules give for one example."""

    total = 0.0

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        output = super().call_function(target, args, kwargs)
        self.total += output[0].numel()
        return output


def _alike(one: Any, other: Any) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape


def _pixels(shape: tuple[int, ...]) -> int:
    return math.prod(shape[1:])


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type it
    """Counts the multiply-adds of what runs inside it, and notes the operations that are neither counted nor free."""

    def __init__(self, sums: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sums = sums
        """Whether sums of two values of equal shape are counted; costs of edges count those at nodes instead."""
        self.total = 0.0
        self.unknown: dict[str, None] = {}

    @property
    def uncounted(self) -> tuple[str, ...]:
        return tuple(sorted(self.unknown))

    def count(self, module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> float:
        """Multiply-adds of a module on one example of this shape, in eval mode."""
        before, batch = self.total, 2
        with self:
            on_meta(module, example(shape, dtype, batch))
        return (self.total - before) / batch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet in flop_registry:
            output = func(*args, **kwargs)
            self.total += flop_registry[packet](*args, **kwargs, out_val=output) / 2
            return output
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in FREE:
            return func(*args, **kwargs)
        if self.sums and name in SUMS and _alike(*args[:2]):
            self.total += args[0].numel()
            return func(*args, **kwargs)
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        self.unknown[str(packet)] = None
        return func(*args, **kwargs)
