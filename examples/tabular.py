"""Tabular regression: a table of numbers, a network that may skip its hidden layers, a limit on its parameters."""

import sys
from pathlib import Path

import numpy as np
from torch import nn

import budgetnet
from budgetnet import Edge, Graph, SuperNetwork

out = Path(sys.argv[-1] if "--out" in sys.argv else "runs/tabular")
table = np.random.default_rng(0).uniform(-1, 1, (768, 8))
price = np.sin(3 * table[:, 0]) + table[:, 1] * table[:, 2] + 0.5 * table[:, 3]
columns = [Edge(f"{a}{b}", f"h{a}", f"h{b}") for a, b in ((0, 1), (1, 2), (2, 3), (0, 2), (1, 3), (0, 3))]
layers = {edge.name: nn.Linear(24, 24) for edge in columns}
net = SuperNetwork(
    Graph(columns), layers, input_shape=(8,), stem=nn.Linear(8, 24), head=nn.Linear(24, 1), activation=nn.ReLU()
)
train, held = (table[:640], price[:640]), (table[640:], price[640:])
result = budgetnet.search(
    net, train, held, budgets={"params": "60%"}, loss="mse", epochs=12, batch_size=64, out=out, quiet=True
)
print(result.summary, result.predict(table[:3]).flatten(), sep="\n")
print(result.export(out / "model.onnx").path, result.export(out / "model.pt2").path)
