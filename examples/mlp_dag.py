"""A super network of your own, not on images: a small MLP whose layers may be skipped, kept or bridged."""

import itertools

import torch
from torch import nn

from budgetnet.costs import bind
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

WIDTH, LAYERS = 16, 4

pairs = list(itertools.combinations(range(LAYERS + 1), 2))
graph = Graph(Edge(f"{a}-{b}", f"layer{a}", f"layer{b}") for a, b in pairs)
modules = {f"{a}-{b}": nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)) for a, b in pairs}
net = SuperNetwork(
    graph, modules, input_shape=(8,), stem=nn.Linear(8, WIDTH), head=nn.Linear(WIDTH, 3), activation=nn.ReLU()
)
print(f"{graph}: {len(graph.edges)} edges to choose from")

gamma = EdgeDistribution(graph, initial=0.0)  # every edge with probability one half
draw = gamma.sample(5, torch.Generator().manual_seed(0))
macs, steps = bind("macs", net), bind("steps(2)", net)
for gates, cost, ticks in zip(draw.gates, macs.evaluate(draw.gates), steps.evaluate(draw.gates), strict=True):
    architecture = graph.architecture(gates).live()
    print(f"{cost:5.0f} multiply-adds, {ticks:2.0f} steps on 2 cores:", *(edge.name for edge in architecture))

x = torch.randn(5, 8)
logits = net(x, draw.gates)  # one architecture per example
small = extract(net.eval(), gamma.mode())  # an ordinary nn.Module that needs only torch
difference = (small(x) - net(x, gamma.mode())).abs().max()
print(f"logits {tuple(logits.shape)}; the extracted network differs from the gated one by {difference:.0e}")
