"""A 1-D signal: which of three rhythms it is, by convolutions that may be left out."""

import sys
from pathlib import Path

import torch
from torch import nn

import budgetnet
from budgetnet import Edge, Graph, SuperNetwork

out = Path(sys.argv[-1] if "--out" in sys.argv else "runs/rhythms")
torch.manual_seed(0)
kind, time = torch.arange(512) % 3, torch.linspace(0, 6.28, 64)
wave = torch.sin((kind[:, None] + 2) * time + 6.28 * torch.rand(512, 1)) + 0.5 * torch.randn(512, 64)
edges = [Edge(f"conv{i}-{k}", f"x{i}", f"x{i + 1}") for i in range(3) for k in (3, 7)]
convs = {edge.name: nn.Conv1d(8, 8, int(edge.name[-1]), padding="same") for edge in edges}
stem = nn.Sequential(nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 8, 5, stride=2))
head = nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 3))
net = SuperNetwork(Graph(edges), convs, input_shape=(64,), stem=stem, head=head, activation=nn.ReLU())
train, held = (wave[:384], kind[:384]), (wave[384:], kind[384:])
result = budgetnet.search(
    net, train, held, budgets="macs<=60%", epochs=8, batch_size=64, classes="abc", out=out, quiet=True
)
print(result.summary, result.labels, sep="\n")
print(result.export(out / "model.onnx").path, result.export(out / "model.pt2").path)
