"""An architecture cut out of its super network: an ordinary `torch.fx.GraphModule` of plain modules."""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Sequence

from torch import fx, nn

from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork, rewritable


def extract(net: SuperNetwork, architecture: Architecture) -> fx.GraphModule:
    """The live part of an architecture as a network of its own, with a copy of the weights.

    It holds the super network's edge modules and nothing of budgetnet; dead edges are gone.
    """
    live = net.graph.architecture(net.graph.live(net.gate_rows(architecture))[0])
    if not live:
        raise UserError(f"{architecture!r} does not connect the input to the output; there is no network to extract")
    builder, edges = _Builder(), net.graph.edges
    values = {net.graph.source: builder.call("stem", net.stem, builder.graph.placeholder("x"))}
    for i, node in enumerate(net.graph.nodes[1:], 1):
        kept = [e for e in net.graph.incoming[i] if edges[e].name in live]
        terms = [builder.call(edges[e].name, net.edge_modules[e], values[edges[e].source]) for e in kept]
        if terms:
            own = [rewritable(net.edge_modules[e]) for e in kept]
            total = builder.sum(terms, own)
            fresh = len(terms) > 1 or own[0]
            values[node] = builder.call(f"{node}.activation", in_place(net.activations[i], fresh), total)
    builder.graph.output(builder.call("head", net.head, values[net.graph.sink]))
    module = fx.GraphModule(builder.modules, builder.graph, class_name="Extracted")
    return module.train(net.training)


def in_place(activation: nn.Module, fresh: bool) -> nn.Module:
    """The activation of a sum: one that writes into it, where there is such a one and the sum is nobody else's."""
    return nn.ReLU(inplace=True) if fresh and type(activation) is nn.ReLU else activation


class _Builder:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.modules = nn.ModuleDict()

    def sum(self, terms: Sequence[fx.Node], own: Sequence[bool]) -> fx.Node:
        """The sum of terms, as the super network adds them: into one that is nobody else's, if there is one."""
        total, rest, fresh = terms[0], list(terms[1:]), own[0]
        if rest and own[1] and not fresh:
            total, rest[0], fresh = rest[0], total, True
        for term in rest:
            total = self.graph.call_function(operator.iadd if fresh else operator.add, (total, term))
            fresh = True
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
        self.modules[target] = copy.deepcopy(module)
        return self.graph.call_module(target, (value,))
