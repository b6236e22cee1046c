"""An architecture cut out of its super network: an ordinary `torch.fx.GraphModule` of plain modules."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Sequence
from typing import Any

from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.network.executor.sums import add_up, in_place
from budgetnet.network.graph import Architecture
from budgetnet.network.slices import Region, attribute
from budgetnet.network.supernet import SuperNetwork, rewritable


def extract(net: SuperNetwork, architecture: Architecture) -> fx.GraphModule:
    """The live part of an architecture as a network of its own, with a copy of the weights.

    It holds the layers of the super network, narrowed to what is kept, and nothing of budgetnet; dead edges are gone.
    It is called as the model was: with a tensor, or with positional or named tensors.

    Args:
        net: The super network.
        architecture: Which of its edges to keep.

    Returns:
        An ordinary module.
    """
    graph = net.graph
    live = graph.live(net.gate_rows(architecture))[0].tolist()
    if not any(live):
        raise UserError(f"{architecture!r} does not connect the input to the output; there is no network to extract")
    builder = _Builder()
    entries = [builder.graph.placeholder(name) for name in net.inputs.names]
    sides = builder.inline(net.prelude.body, entries) if net.prelude is not None else []
    values = {0: builder.call("stem", net.stem, entries[net.inputs.main])}
    arriving: list[list[int]] = [[] for _ in graph.nodes]
    for number, operation in enumerate(graph.operations):
        if live[operation.edges[0]] or any(live[edge] for edge in operation.edges):
            arriving[operation.target].append(number)
    for node, numbers in enumerate(arriving):
        if not numbers:
            continue
        modules = [net.edge_modules[number] for number in numbers]
        terms = []
        for number, module in zip(numbers, modules, strict=True):
            operation = graph.operations[number]
            value = values[operation.source]
            if isinstance(module, Region):
                keeps = tuple(tuple(live[edge] for edge in axis) for axis in operation.axes)
                body = module.narrow(keeps) if operation.bundle else module.body
                terms.append(builder.inline(body, [value, *(sides[i] for i in module.sides)]))
            else:
                terms.append(builder.call(operation.name, module, value))
        own = [rewritable(module) for module in modules]
        activation = in_place(net.activations[node], len(terms) > 1 or own[0])
        values[node] = builder.call(f"{graph.nodes[node]}.activation", activation, builder.sum(terms, own))
    builder.graph.output(builder.call("head", net.head, values[len(graph.nodes) - 1]))
    module = fx.GraphModule(copy.deepcopy(builder.modules), builder.graph, class_name="Extracted")
    if net.prelude is not None:
        module.graph.eliminate_dead_code()
        module.recompile()
    module.delete_all_unused_submodules()
    module.meta["inputs"] = net.inputs
    return module.train(net.training)


class _Builder:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.modules: dict[str, Any] = {}

    def inline(self, body: fx.GraphModule, inputs: Sequence[fx.Node]) -> Any:
        """The nodes of a region's graph, on these inputs, with its layers under their own names."""
        copied: dict[fx.Node, Any] = {}
        given = iter(inputs)
        for node in body.graph.nodes:
            if node.op == "placeholder":
                copied[node] = next(given)
            elif node.op == "output":
                return fx.map_arg(node.args[0], lambda old: copied[old])
            else:
                if node.op in ("call_module", "get_attr"):
                    self.modules[node.target] = attribute(body, node.target)
                copied[node] = self.graph.node_copy(node, lambda old: copied[old])
        raise AssertionError("a region has an output")

    def sum(self, terms: Sequence[fx.Node], own: Sequence[bool]) -> fx.Node:
        """The sum of terms, as the super network adds them: into one that is nobody else's, if there is one."""
        order, written, _ = add_up(own)
        total = terms[order[0]]
        for term in order[1:]:
            total = self.graph.call_function(operator.iadd if written else operator.add, (total, terms[term]))
            written = True
        return total

    def call(self, name: str, module: nn.Module, value: fx.Node) -> fx.Node:
        """The node of a copy of this module applied to a value; nothing at all for an identity."""
        if isinstance(module, nn.Identity):
            return value
        target = base = "m_" + re.sub(r"\W", "_", name)
        attempt = 1
        while target in self.modules:
            attempt += 1
            target = f"{base}_{attempt}"
        self.modules[target] = module
        return self.graph.call_module(target, (value,))
