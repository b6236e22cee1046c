"""An architecture cut out of its super network: an ordinary `torch.fx.GraphModule` of plain modules."""

from __future__ import annotations

import copy
import operator
import re

from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.graph import Architecture
from budgetnet.supernet import SuperNetwork


def extract(net: SuperNetwork, architecture: Architecture) -> fx.GraphModule:
    """The live part of an architecture as a network of its own, with a copy of the weights.

    It holds the super network's edge modules and nothing of budgetnet; dead edges are gone.
    """
    live = net.graph.architecture(net.graph.live(net.gate_rows(architecture))[0])
    if not live:
        raise UserError(f"{architecture!r} does not connect the input to the output; there is no network to extract")
    builder = _Builder()
    values = {net.graph.source: builder.call("stem", net.stem, builder.graph.placeholder("x"))}
    for i, node in enumerate(net.graph.nodes[1:], 1):
        terms = [
            builder.call(edge.name, net.edge_modules[e], values[edge.source])
            for e in net.graph.incoming[i]
            if (edge := net.graph.edges[e]).name in live
        ]
        if terms:
            total = terms[0]
            for term in terms[1:]:
                total = builder.graph.call_function(operator.add, (total, term))
            values[node] = builder.call(f"{node}.activation", net.activations[i], total)
    builder.graph.output(builder.call("head", net.head, values[net.graph.sink]))
    module = fx.GraphModule(builder.modules, builder.graph, class_name="Extracted")
    return module.train(net.training)


class _Builder:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.modules = nn.ModuleDict()

    def call(self, name: str, module: nn.Module, value: fx.Node) -> fx.Node:
        """The node of a copy of this module applied to a value; nothing at all for an identity."""
        if isinstance(module, nn.Identity):
            return value
        target = base = "m_" + re.sub(r"\W", "_", name)
        attempt = 1
        while target in self.modules:
            attempt += 1
            target = f"{base}_{attempt}"
        self.modules[target] = copy.deepcopy(module)
        return self.graph.call_module(target, (value,))
