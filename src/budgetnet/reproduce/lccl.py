"""LCCL (Dong et al., CVPR 2017): a ResNet whose convolutions leave out what a cheap convolution says will be zero.

It is one of the systems that the paper compares with. Its cost depends on the input, so it is a mean over images.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.errors import UserError


class LCCL(nn.Module):
    """A pre-activation ResNet of 6n + 2 layers with low-cost collaborative layers.

    Args:
        depth: Number of layers, 6n + 2.
        classes: Number of classes.
        channels: Channels of the first group of blocks; each of the three groups has twice those of the one before.
    """

    def __init__(self, depth: int = 20, classes: int = 10, channels: int = 16) -> None:
        super().__init__()
        if depth < 8 or (depth - 2) % 6:
            raise UserError(f"an LCCL network has 6n + 2 layers, not {depth}; use 20, 32, 44, 56 or 110")
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        blocks: list[nn.Module] = []
        width = channels
        for group in range(3):
            for block in range((depth - 2) // 6):
                outputs = channels * 2**group
                blocks.append(_Block(width, outputs, stride=2 if group and not block else 1))
                width = outputs
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class logits of a batch of images."""
        x = F.relu(self.norm(self.blocks(self.stem(x))))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


class Collaborative(nn.Module):
    """`conv3×3(x) ⊙ ReLU(BN(conv1×1(x)))`: the second factor has one channel, and where it is zero so is the output."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.cheap = nn.Conv2d(inputs, 1, 1, stride, bias=False)
        self.norm = nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        product: Tensor = self.wide(x) * self.map(x)
        return product

    def map(self, x: Tensor) -> Tensor:
        """The factor of one channel; its zeros need not be computed by the 3×3 convolution."""
        return F.relu(self.norm(self.cheap(x)))


class _Block(nn.Module):
    """Two collaborative layers beside a shortcut without parameters, which pads new channels with zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)])
        self.layers = nn.ModuleList([Collaborative(inputs, outputs, stride), Collaborative(outputs, outputs, 1)])
        self.stride, self.padding = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        value = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            value = layer(F.relu(norm(value)))
        return value + F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))


def mean_macs(net: LCCL, batches: Iterable[Tensor]) -> float:
    """Multiply-adds per image, averaged over the images of some batches.

    A 3×3 convolution is charged for the positions whose map is not zero; the 1×1 convolutions are charged in full.

    Args:
        net: The network; it is put into evaluation mode while it is measured.
        batches: Images, `(batch, 3, height, width)` each.

    Returns:
        The mean number of multiply-adds of one image.
    """
    total, images = 0.0, 0
    layers = [module for module in net.modules() if isinstance(module, Collaborative)]

    def charge(layer: Collaborative, inputs: tuple[Tensor], output: Tensor) -> None:
        nonlocal total
        computed = int(torch.count_nonzero(layer.map(inputs[0])))
        total += computed * layer.wide.weight.numel()
        total += output[:, :1].numel() * layer.cheap.weight.numel()

    handles: list[Any] = [layer.register_forward_hook(charge) for layer in layers]
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            for batch in batches:
                net(batch)
                images += len(batch)
                pixels = batch.shape[2] * batch.shape[3]
                total += len(batch) * (net.stem.weight.numel() * pixels + net.head.weight.numel())
    finally:
        net.train(training)
        for handle in handles:
            handle.remove()
    if not images:
        raise UserError("the mean cost of LCCL needs at least one image; no batch was given")
    return total / images
