"""Text by token ids: padding is masked inside the network, whose layers may be skipped; a limit in bytes."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import budgetnet
from budgetnet import Edge, Graph, SuperNetwork


class Words(nn.Embedding):  # token ids N×L to the mean over the words that are there: 0 is padding
    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != 0).unsqueeze(2).float()
        return (super().forward(ids) * mask).sum(1) / mask.sum(1).clamp_min(1)


out = Path(sys.argv[-1] if "--out" in sys.argv else "runs/text")
torch.manual_seed(0)
ids = torch.randint(1, 50, (640, 12)) * (torch.arange(12) < torch.randint(4, 13, (640, 1)))
positive = ((ids > 25).sum(1) > (ids > 0).sum(1) / 2).long()
edges = [Edge(name, *name.split("-")) for name in ("a-b", "b-c", "a-c", "b-d", "c-d")]
layers = {edge.name: nn.Linear(16, 16) for edge in edges}
ends = {"stem": Words(50, 16), "head": nn.Linear(16, 2), "activation": nn.GELU()}
net = SuperNetwork(Graph(edges), layers, input_shape=(12,), input_dtype=torch.int64, **ends)
train, held = (ids[:512], positive[:512]), (ids[512:], positive[512:])
result = budgetnet.search(net, train, held, budgets={"size": "80%"}, epochs=10, batch_size=64, out=out, quiet=True)
print(result.summary)
print(result.export(out / "model.onnx").path, result.export(out / "model.pt2").path)
