"""Costs that add up over live edges and nodes: multiply-adds, parameters, bytes of state; no numbers are computed."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from budgetnet.costs.base import Cost, least_path
from budgetnet.errors import UserError, reason
from budgetnet.network.axes import Polynomial
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.meta import example, on_meta
from budgetnet.network.slices import Region
from budgetnet.network.supernet import SuperNetwork

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


@dataclass(frozen=True, eq=False)
class BundleCost:
    """What a bundle, or a chain of bundles, costs: exact for every set of kept units.

    Attributes:
        axes: The edges of each axis: the units of its bundles.
        count: The cost as a polynomial in the widths that are kept.
        once: What the whole adds besides, if any of it is kept: its addition at the node that it leads to.
    """

    axes: tuple[tuple[int, ...], ...]
    count: Polynomial
    once: float = 0.0

    def evaluate(self, live: Tensor) -> Tensor:
        """The cost for each row of live gates; nothing where no unit is live."""
        kept = [live[:, list(axis)] for axis in self.axes]
        return kept[0].any(1).double() * (self.once + self.count.evaluate(kept))


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

    bundles: tuple[BundleCost, ...] = ()
    """What the bundles cost, whose units have no cost of their own in `edges`."""

    def evaluate(self, live: Tensor) -> Tensor:
        """The cost of each row of live gates (n × edges), float64."""
        node_live = torch.stack([live[:, ends].any(1) for ends in self.graph.incoming[1:]], 1)
        total: Tensor = self.base + live.double() @ self.edges + node_live.double() @ self.nodes[1:]
        for bundle in self.bundles:
            total = total + bundle.evaluate(live)
        return total

    def recount(self, network: fx.GraphModule) -> float | None:
        """The cost of an extracted network, counted on its modules."""
        return None if self.counter is None else float(self.counter(network))

    def smallest(self) -> Architecture | None:
        """The cheapest connected architecture: costs are not negative, so every further edge costs more."""
        weights = self.edges + self.nodes[torch.tensor(self.graph.targets)]
        return least_path(self.graph, weights.tolist())


def macs(net: SuperNetwork, accounting: str = "true") -> AdditiveCost:
    """Multiply-adds of one example: convolutions, linear layers, and sums of n inputs as n − 1 each.

    Free: bias, batch norm, activation, pooling, resize, identity.

    Args:
        net: The super network.
        accounting: `true`, or `paper`, which charges up-sampling at its input's size as the published tables do.

    Returns:
        The cost: an architecture in, multiply-adds out.
    """
    if accounting not in ACCOUNTINGS:
        raise UserError(f"accounting {accounting!r} does not exist; use {' or '.join(ACCOUNTINGS)}")
    graph, shapes = net.graph, net.shapes
    counter = _Counter()
    inputs = net.inputs.example()
    main, sides = (net.inputs.tensors(inputs)[0], ()) if net.prelude is None else on_meta(net.prelude, inputs)
    base = counter.count(net.stem, main)
    base += counter.count(net.head, example(shapes.nodes[-1], shapes.dtypes[-1]))
    sums = torch.tensor([float(math.prod(shape)) for shape in shapes.sums], dtype=torch.float64)
    edges, bundles = torch.zeros(len(graph.edges), dtype=torch.float64), []
    for operation, module in zip(graph.operations, net.edge_modules, strict=True):
        source, added = operation.source, float(sums[operation.target])
        x = example(shapes.nodes[source], shapes.dtypes[source])
        if operation.bundle:
            assert isinstance(module, Region)
            work = counter.work(module.body, x, *(sides[i] for i in module.sides))
            bundles.append(BundleCost(operation.axes, module.call_counts(work), added))
            continue
        if isinstance(module, Region):
            count = math.fsum(counter.work(module.body, x, *(sides[i] for i in module.sides)).values())
        else:
            count = counter.count(module, x)
        if accounting == "paper":
            before, after = _pixels(shapes.nodes[source]), _pixels(shapes.sums[operation.target])
            count = count * min(before, after) / after
        edges[operation.edges[0]] = added + count
    nodes = -sums
    for i, module in enumerate(net.activations):
        nodes[i] += counter.count(module, example(shapes.sums[i], shapes.dtypes[i]))
    recount = partial(_macs_of, inputs=net.inputs.tensors(inputs)) if accounting == "true" else None
    return AdditiveCost(graph, base, edges, nodes, counter.uncounted, recount, tuple(bundles))


def params(net: SuperNetwork) -> AdditiveCost:
    """Trainable numbers: weights, biases, batch-norm scale and shift.

    Args:
        net: The super network.

    Returns:
        The cost: an architecture in, a number of parameters out.
    """

    def of(module: nn.Module) -> float:
        return float(sum(parameter.numel() for parameter in module.parameters()))

    return _per_module(net, of, lambda tensor: float(tensor.numel()) if isinstance(tensor, nn.Parameter) else 0.0)


def size(net: SuperNetwork) -> AdditiveCost:
    """Bytes of the extracted network's state as saved: parameters and buffers, without the file's header.

    Args:
        net: The super network.

    Returns:
        The cost: an architecture in, bytes out.
    """

    def of(module: nn.Module) -> float:
        return float(sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values()))

    return _per_module(net, of, lambda tensor: float(tensor.numel() * tensor.element_size()))


def _per_module(
    net: SuperNetwork, of: Callable[[nn.Module], float], measure: Callable[[Tensor], float]
) -> AdditiveCost:
    """A cost that adds up over modules, and in bundles over tensors."""
    edges, bundles = torch.zeros(len(net.graph.edges), dtype=torch.float64), []
    for operation, module in zip(net.graph.operations, net.edge_modules, strict=True):
        if operation.bundle:
            assert isinstance(module, Region)
            bundles.append(BundleCost(operation.axes, module.tensor_counts(measure)))
        else:
            edges[operation.edges[0]] = of(module)
    nodes = torch.tensor([of(module) for module in net.activations], dtype=torch.float64)
    base = of(net.stem) + of(net.head) + (0.0 if net.prelude is None else of(net.prelude))
    return AdditiveCost(net.graph, base, edges, nodes, counter=of, bundles=tuple(bundles))


def _macs_of(network: fx.GraphModule, inputs: Sequence[Tensor]) -> float:
    """What the modules of an extracted network multiply and add, and the sums between them."""
    return math.fsum(_Counter().work(network, *inputs).values())


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


class _Nodes(fx.Interpreter):
    """Notes what each node of a graph adds to a counter. Sums within a module are the module's own affair."""

    def __init__(self, graph: fx.GraphModule, counter: _Counter) -> None:
        super().__init__(graph)
        self.counter, self.work = counter, dict[str, float]()

    def run_node(self, n: fx.Node) -> Any:
        """Runs a node, and notes its work."""
        before, self.counter.sums = self.counter.total, n.op != "call_module"
        output = super().run_node(n)
        if n.op.startswith("call"):
            self.work[n.name] = self.counter.total - before
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

    def count(self, module: nn.Module, x: Tensor) -> float:
        """Multiply-adds of a module on one of these examples, in eval mode."""
        before = self.total
        with self:
            on_meta(module, x)
        return (self.total - before) / len(x)

    def work(self, graph: fx.GraphModule, *inputs: Tensor) -> dict[str, float]:
        """Multiply-adds of every call of a graph, by its name, on one of these examples; sums between calls too."""
        nodes = _Nodes(copy.deepcopy(graph).to("meta").eval(), self)
        with torch.no_grad(), self:
            nodes.run(*inputs)
        self.sums = False
        return {name: work / len(inputs[0]) for name, work in nodes.work.items() if work}

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
