"""Half of a trained ResNet: your model in, a smaller one out, with a certificate and an ONNX file."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

import budgetnet


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="runs/shrink-resnet")
run = parser.parse_args().out
torch.manual_seed(0)
images = budgetnet.data.load("embedded:size=14,limit=2560")
train, validation = ((s.inputs.float() / 127.5 - 1, s.targets) for s in (images.train, images.validation))
model = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), Block(16), Block(16), nn.AvgPool2d(7), nn.Flatten(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for rows in torch.randperm(6 * len(train[0])).remainder(len(train[0])).split(64):  # or load your own weights
    optimizer.zero_grad()
    F.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
    optimizer.step()
net = budgetnet.from_model(model, train[0][:2])
print(net.describe())
result = budgetnet.search(net, train, validation, budgets="macs<=50%", epochs=2, out=run, quiet=True)
print(result.certificate.show())
print(f"{result.export(f'{run}/model.onnx').path} is ready for ONNX Runtime")
