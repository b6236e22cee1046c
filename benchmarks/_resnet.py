"""ResNet-20 by hand, in plain torch: the environment of other tools runs it without this package."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

CLASSES = 10


class Block(nn.Module):
    """A residual block as people write it, with sums and activations in place; `norm=False` is the folded one."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs) if norm else nn.Identity()
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if inputs != outputs or stride != 1:
            conv = nn.Conv2d(inputs, outputs, 1, stride)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs)) if norm else conv

    def forward(self, x: Tensor) -> Tensor:
        """relu(block(x) + shortcut(x))."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.shortcut is None else self.shortcut(x)
        activated: Tensor = self.relu(out)
        return activated


class HandResNet(nn.Module):
    """ResNet-20 for small images in plain torch: the network that the fabric of width 3 has as its spine."""

    def __init__(self, channels: int, blocks: int = 3, norm: bool = True, inputs: int = 3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, channels, 3, 1, 1)
        self.bn = nn.BatchNorm2d(channels) if norm else nn.Identity()
        self.relu = nn.ReLU(inplace=True)
        widths = [channels, channels, 2 * channels, 4 * channels]
        layers = []
        for before, outputs in itertools.pairwise(widths):
            stride = 1 if before == outputs else 2
            layers += [Block(before, outputs, stride, norm)]
            layers += [Block(outputs, outputs, 1, norm) for _ in range(blocks - 1)]
        self.blocks = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.linear = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        x = self.blocks(self.relu(self.bn(self.conv(x))))
        logits: Tensor = self.linear(torch.flatten(self.pool(x), 1))
        return logits
