"""`SuperNetwork`: a graph with one module per edge, run with one architecture per group of the batch.

Each live edge runs once, on the examples of the groups that keep it, so compute and memory follow what was sampled.
A node's value holds only the rows of the groups in which the node is live.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from budgetnet.errors import UserError
from budgetnet.network.axes import Keeps
from budgetnet.network.describe import Summary, describe
from budgetnet.network.executor.plan import CPU, Plan, Run, make_plan
from budgetnet.network.executor.rows import gather, lent, spread, take
from budgetnet.network.executor.sums import add_up, writes_into_input
from budgetnet.network.graph import Architecture, Graph
from budgetnet.network.inputs import Inputs, InputSpec, Prelude
from budgetnet.network.meta import example, on_meta
from budgetnet.network.slices import Region


class SuperNetwork(nn.Module):
    """`l_i = act_i(Σ_k h_{k,i} f_{k,i}(l_k))`, `l_1 = stem(x)`, output `head(l_N)` (paper, equation 1).

    `edge_modules` has the modules in the order of `graph.operations`, which are the edges where there are no bundles;
    `inputs` says what inputs look like. One dry run on the meta device finds the shapes, and edges that do not fit.

    Args:
        graph: The graph.
        modules: By the names of operations (edges, or the first bundle of a chain); a bundle's is a `Region`.
        input_shape: Of one example.
        stem: What makes the source's value of the input.
        head: What makes the output of the sink's value.
        activation: Copied to every node but the source, or modules by node.
        input_dtype: Of the input.
        name: By which records and messages call the super network.
        named: Architectures by name, such as a ResNet inside a fabric.
        memory_format: In which a training loop should give examples: modules that call `view` want the default,
            convolutions on a CPU are faster with channels last.
        prelude: Takes inputs of several tensors apart.
        trained: Whether the weights are a trained model's.
    """

    def __init__(
        self,
        graph: Graph,
        modules: Mapping[str, nn.Module],
        *,
        input_shape: Sequence[int],
        stem: nn.Module | None = None,
        head: nn.Module | None = None,
        activation: nn.Module | Mapping[str, nn.Module] | None = None,
        input_dtype: torch.dtype = torch.float32,
        name: str = "custom",
        named: Mapping[str, Architecture] | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
        prelude: Prelude | None = None,
        trained: bool = False,
    ) -> None:
        super().__init__()
        _check_modules(graph, modules)
        self.graph = graph
        self.name = name
        self.named = dict(named or {})
        self.input_shape = tuple(input_shape)
        self.input_dtype = input_dtype
        self.memory_format = memory_format
        self.trained = trained
        self.reasons: dict[str, str] = {}
        """Why layers of a converted model cannot be narrowed, by name."""
        alone = InputSpec("tensor", ("x",), (self.input_shape,), (input_dtype,))
        self.inputs = alone if prelude is None else prelude.spec
        self.prelude = prelude
        self.stem = stem or nn.Identity()
        self.edge_modules = nn.ModuleList(modules[operation.name] for operation in graph.operations)
        self.activations = nn.ModuleList(_activations(graph, activation))
        self.head = head or nn.Identity()
        self.shapes = dry_run(self)

    def forward(self, inputs: Inputs, gates: Tensor | Architecture | None = None) -> Tensor:
        """Logits of each example under its group's architecture.

        Args:
            inputs: A batch: a tensor, or a tuple or dict of tensors.
            gates: An architecture, a row of gates, or groups × edges; None is the whole super network.

        Returns:
            Logits. Examples of a group whose architecture does not connect the source to the sink get zeros.
        """
        x, sides = self.enter(inputs)
        plan = self.plan(gates, len(x), x.device)
        if not plan.steps:
            dtype = x.dtype if x.is_floating_point() else self.shapes.dtype
            zeros = x.new_zeros((len(x), *self.shapes.output), dtype=dtype)
            return zeros.requires_grad_(torch.is_grad_enabled())  # a training step need not know about this case
        values = _Values(plan)
        values.put(0, call(self.stem, take(x, plan.inputs)))
        for step in plan.steps:
            small = self._narrowed(step.runs, values)
            terms = [self._run(run, values, sides, small.get(run.key)) for run in step.runs]
            own = [rewritable(self.edge_modules[run.operation]) for run in step.runs]
            total = gather(terms, [run.place for run in step.runs], step.rows, step.gap, own)
            fresh = add_up(own).fresh or step.runs[0].place is not None
            del terms
            values.put(step.node, _activate(self.activations[step.node], total, fresh))
            values.drop(step.free)
        output = call(self.head, values.last)
        return output if plan.inputs is None else gather([output], [plan.inputs], len(x), plan.gap)

    def enter(self, inputs: Inputs) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Takes inputs apart.

        Args:
            inputs: A batch: a tensor, or a tuple or dict of tensors.

        Returns:
            What the stem takes, and the side values that edges read besides their source.
        """
        if self.prelude is not None:
            return cast(tuple[Tensor, tuple[Tensor, ...]], self.prelude(inputs))
        return self.inputs.tensors(inputs)[0], ()

    def _narrowed(self, runs: Sequence[Run], values: _Values) -> dict[int, Sequence[Any]]:
        """The narrowed layers of runs (by key): those of all runs of an operation together."""
        partial: dict[int, list[Run]] = {}
        for run in runs:
            if run.keeps is not None:
                partial.setdefault(run.operation, []).append(run)
        found: dict[int, Sequence[Any]] = {}
        for number, group in partial.items():
            region = cast(Region, self.edge_modules[number])
            small = region.narrowed([cast(Keeps, run.keeps) for run in group], values.whole[group[0].source])
            found.update(zip((run.key for run in group), small, strict=True))
        return found

    def _run(self, run: Run, values: _Values, sides: Sequence[Tensor], small: Sequence[Any] | None) -> Tensor:
        module = self.edge_modules[run.operation]
        with values.lent(run) as part:
            if not isinstance(module, Region):
                return call(module, part)
            assert self.prelude is not None or not module.sides
            by_example = self.prelude.by_example if self.prelude is not None else ()
            beside = [take(sides[i], run.rows) if by_example[i] else sides[i] for i in module.sides]
            return call(module, part, *beside, keeps=run.keeps, small=small)

    def plan(self, gates: Tensor | Architecture | None, batch: int, device: torch.device = CPU) -> Plan:
        """How to run some architectures together; computed once for equal gates.

        Args:
            gates: As for `forward`.
            batch: The number of examples.
            device: Where they are.

        Returns:
            The plan.
        """
        rows = self.gate_rows(gates)
        if not 1 <= len(rows) <= batch:
            raise UserError(
                f"{len(rows)} architectures cannot share {batch} examples; use one or more, at most one per example"
            )
        return make_plan(self.graph, np.packbits(rows.numpy()).tobytes(), len(rows), batch, device)

    def gate_rows(self, gates: Tensor | Architecture | None) -> Tensor:
        """Any way to say which edges are kept as a tensor.

        Args:
            gates: As for `forward`.

        Returns:
            Groups × edges (bool, on the CPU).
        """
        if gates is None:
            return torch.ones(1, len(self.graph.edges), dtype=torch.bool)
        if isinstance(gates, Architecture):
            if gates.graph != self.graph:
                raise UserError(f"the architecture is of {gates.graph!r}, the super network is {self.graph!r}")
            gates = gates.gates()
        rows = gates.detach().to("cpu", torch.bool)
        rows = rows[None] if rows.dim() == 1 else rows
        if rows.dim() != 2 or rows.shape[1] != len(self.graph.edges):
            raise UserError(f"gates are groups × {len(self.graph.edges)} edges, not {tuple(gates.shape)}")
        return rows

    def describe(self) -> Summary:
        """What can be dropped or narrowed, and what it costs; prints as a table."""
        return describe(self)

    def _repr_html_(self) -> str:
        """For notebooks: the table of `describe`; `budgetnet.draw` makes a picture."""
        return self.describe()._repr_html_()

    def architecture(self, name: str) -> Architecture:
        """A named architecture.

        Args:
            name: `full` for every edge, or a name of `named`.

        Returns:
            The architecture.
        """
        if name == "full":
            return self.graph.full
        if name not in self.named:
            raise UserError(
                f"{self.name} has no architecture named {name!r}; it has {', '.join(['full', *self.named])}, "
                "and takes a file written by Architecture.to_json()"
            )
        return self.named[name]


@dataclass(frozen=True)
class Shapes:
    """What the dry run found, without the batch dimension: a node's sum, its value, and the output."""

    sums: tuple[tuple[int, ...], ...]
    nodes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    output: tuple[int, ...]
    dtype: torch.dtype


class _Values:
    """The values of the nodes while a plan is carried out: whole, or as the rows that each edge reads."""

    def __init__(self, plan: Plan) -> None:
        self.spreads = plan.spreads
        self.whole: dict[int, Tensor] = {}
        self.parts: dict[int, Tensor] = {}

    def put(self, node: int, value: Tensor) -> None:
        """A new value."""
        self.whole[node] = self.last = value
        plan = self.spreads.get(node)
        if plan is not None:
            self.parts.update(zip(plan.runs, spread(value, plan.parts, plan.gap), strict=True))

    def lent(self, run: Run) -> contextlib.AbstractContextManager[Tensor]:
        """What a run reads; it does so once."""
        value = self.whole[run.source]
        return lent(self.parts.pop(run.key, value), value, run.take)

    def drop(self, nodes: Sequence[int]) -> None:
        """Nobody needs these any more."""
        for node in nodes:
            self.whole.pop(node, None)


_REWRITABLE = (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.Linear)


def rewritable(module: nn.Module) -> bool:
    """Whether a module gives a tensor of its own that its gradient does not need, so that it may be written to."""
    while type(module) is nn.Sequential and len(module):
        module = module[-1]
    return module.rewritable if isinstance(module, Region) else isinstance(module, _REWRITABLE)


def _activate(module: nn.Module, total: Tensor, fresh: bool) -> Tensor:
    """The activation of a sum; in place if the sum is a tensor of its own."""
    return total.relu_() if fresh and writes_into_input(module) else call(module, total)


def call(module: nn.Module, x: Tensor, *sides: Tensor, **options: Any) -> Tensor:
    """A module's output; in training, also for a single example, of which batch norm can make no statistics."""
    if len(x) == 1 and module.training:
        return _call_on_one_example(module, x, *sides, **options)
    return cast(Tensor, module(x, *sides, **options))


def _call_on_one_example(module: nn.Module, *args: Tensor, **options: Any) -> Tensor:
    """Batch norm with a single value per channel has no statistics: it uses its running ones and updates nothing."""
    stopped: list[nn.Module] = []

    def stop(norm: nn.Module, inputs: tuple[Tensor]) -> None:
        if norm.training and inputs[0].numel() == inputs[0].shape[1]:
            norm.training = False
            stopped.append(norm)

    norms = [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]
    handles = [norm.register_forward_pre_hook(stop) for norm in norms]
    try:
        return cast(Tensor, module(*args, **options))
    finally:
        for handle in handles:
            handle.remove()
        for norm in stopped:
            norm.training = True


def dry_run(net: SuperNetwork) -> Shapes:
    """The shape at every node, found operation by operation; the first that does not fit is named.

    A node between the bundles of a chain has no value: its shape has no elements.
    """
    graph = net.graph
    inputs = net.inputs.example()
    main, sides = (net.inputs.tensors(inputs)[0], ()) if net.prelude is None else on_meta(net.prelude, inputs)
    start = _try(net.stem, [main], "the stem", "the input")
    sums, values = [start], [start]
    arriving: list[list[int]] = [[] for _ in graph.nodes]
    for number, operation in enumerate(graph.operations):
        arriving[operation.target].append(number)
    for node, numbers in list(enumerate(arriving))[1:]:
        where = f"node {graph.nodes[node]!r}"
        outputs: list[Tensor] = []
        for number in numbers:
            operation, module = graph.operations[number], net.edge_modules[number]
            beside = [sides[i] for i in module.sides] if isinstance(module, Region) else []
            giver = f"node {graph.nodes[operation.source]!r}"
            outputs.append(_try(module, [values[operation.source], *beside], f"edge {operation.name!r}", giver))
            if outputs[-1].shape != outputs[0].shape:
                raise UserError(
                    f"edge {operation.name!r} brings {_show(outputs[-1])} to {where}, where edge "
                    f"{graph.operations[numbers[0]].name!r} brings {_show(outputs[0])}; "
                    "make the shapes equal, they are summed"
                )
        sums.append(outputs[0] if outputs else example((0,)))
        activation = net.activations[node]
        values.append(_try(activation, [sums[-1]], f"the activation of {where}", where) if outputs else sums[-1])
    output = _try(net.head, [values[-1]], "the head", f"node {graph.sink!r}")
    return Shapes(
        tuple(tuple(value.shape[1:]) for value in sums),
        tuple(tuple(value.shape[1:]) for value in values),
        tuple(value.dtype for value in values),
        tuple(output.shape[1:]),
        output.dtype,
    )


def _try(module: nn.Module, inputs: Sequence[Tensor], who: str, giver: str) -> Tensor:
    x = inputs[0]
    writes = x._version
    try:
        output = on_meta(module, *inputs)
    except Exception as error:  # a user's module may raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{who} cannot take what {giver} gives, {_show(x)} for one example: {reason}") from error
    if not isinstance(output, Tensor) or output.shape[:1] != x.shape[:1]:
        raise UserError(f"{who} must give one tensor with a row per example; it gives {_show(output)}")
    if x._version != writes:
        raise UserError(f"{who} writes into its input, which other edges may read; make it with inplace=False")
    return output


def _show(value: object) -> str:
    return "×".join(map(str, value.shape[1:])) if isinstance(value, Tensor) else type(value).__name__


def _activations(graph: Graph, activation: nn.Module | Mapping[str, nn.Module] | None) -> list[nn.Module]:
    nodes = graph.nodes[1:]
    if not isinstance(activation, Mapping):
        activation = {node: copy.deepcopy(activation) for node in nodes} if activation is not None else {}
    unknown = sorted(set(activation) - set(nodes))
    if unknown:
        raise UserError(
            f"an activation is given for {unknown[0]!r}, which is not a node with incoming edges; remove it"
        )
    for node, module in activation.items():
        _check_module(f"the activation of node {node!r}", module)
    return [nn.Identity(), *(activation[node] if node in activation else nn.Identity() for node in nodes)]


def _check_module(who: str, module: object) -> None:
    if not isinstance(module, nn.Module):
        raise UserError(f"{who} is no nn.Module but {_show(module)}; give one, such as nn.ReLU() instead of torch.relu")


def _check_modules(graph: Graph, modules: Mapping[str, nn.Module]) -> None:
    for operation in graph.operations:
        name = operation.name
        if name not in modules:
            raise UserError(f"edge {name!r} has no module; give one in `modules`, nn.Identity() for a plain skip")
        module = modules[name]
        units = [axis.units for axis in module.axes] if isinstance(module, Region) else []
        if operation.bundle and units != [len(axis) for axis in operation.axes]:
            raise UserError(f"the bundle {name!r} needs a Region whose axes have the bundle's units; give one")
    unknown = sorted(set(modules) - {operation.name for operation in graph.operations})
    if unknown:
        raise UserError(f"a module is given for {unknown[0]!r}, which is not an edge of the graph; remove it")
    owners: dict[int, str] = {}
    for name, module in modules.items():
        _check_module(f"edge {name!r}", module)
        if isinstance(module, Region):
            continue  # a model's tied weights are in edges that are always live
        for tensor in [*module.parameters(), *module.buffers()]:
            if owners.setdefault(id(tensor), name) != name:
                raise UserError(
                    f"edges {owners[id(tensor)]!r} and {name!r} share a parameter; give each edge a module of its own, "
                    "since costs add up over edges"
                )
