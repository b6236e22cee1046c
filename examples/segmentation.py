"""Segmentation: which pixels are the disc, by a fabric of scales, scored by mean intersection over union."""

import sys
from pathlib import Path

import torch

import budgetnet

out = Path(sys.argv[-1] if "--out" in sys.argv else "runs/segmentation")
torch.manual_seed(0)
axis = torch.arange(16.0)
centre, radius = 4 + 8 * torch.rand(160, 2, 1, 1), 2 + 3 * torch.rand(160, 1, 1)
disc = ((axis[:, None] - centre[:, 0]) ** 2 + (axis - centre[:, 1]) ** 2 < radius**2).long()
image = (90 * disc + 120 * torch.rand(160, 16, 16)).to(torch.uint8).unsqueeze(1)
net = budgetnet.spaces.neural_fabric(2, 3, filters=4, task="segmentation", classes=2, input_shape=(1, 16, 16))
train, held = (image[:128], disc[:128]), (image[128:], disc[128:])
how = {"metric": "mean_iou", "classes": ("ground", "disc"), "epochs": 4, "batch_size": 32}
result = budgetnet.search(net, train, held, budgets="macs<=70%", out=out, quiet=True, **how)
print(result.summary)
print(result.export(out / "model.onnx").path, result.export(out / "model.pt2").path)
