"""MSDNet (Huang et al., ICLR 2018): a multi-scale dense network with a classifier at several depths.

It is one of the systems that the paper compares with. Every exit is a network of its own cost: the layers up to it, and
its classifier.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from budgetnet.errors import UserError


@dataclass(frozen=True)
class Settings:
    """The sizes of an MSDNet; the defaults are those for CIFAR.

    Attributes:
        classes: Number of classes.
        exits: Number of classifiers.
        channels: Channels of the first layer at the finest scale.
        growth: Channels that a layer adds at the finest scale.
        factors: Of channels and growth at each scale, from fine to coarse; also the width of a bottleneck, as a
            multiple of what it gives.
        base: Layers before the first exit.
        step: Layers between two exits.
        exit_channels: Channels of a classifier's convolutions; None keeps those of its input.
        image_net: Whether the first layer is a strided 7×7 convolution with pooling.
    """

    classes: int = 10
    exits: int = 11
    channels: int = 16
    growth: int = 6
    factors: tuple[int, ...] = (1, 2, 4)
    base: int = 4
    step: int = 2
    exit_channels: int | None = 128
    image_net: bool = False

    @property
    def layers(self) -> int:
        """Layers in all, the first one not counted."""
        return self.base + (self.exits - 1) * self.step


IMAGE_NET = Settings(1000, 5, 32, 16, (1, 2, 4, 4), 7, 7, None, image_net=True)
"""The smaller of the published settings for ImageNet."""


class MSDNet(nn.Module):
    """The logits of every exit, stacked: `(exits, batch, classes)`."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = settings = settings or Settings()
        if settings.exits < 1 or settings.base < 1 or settings.step < 1:
            raise UserError(f"{settings} has no exit; give at least one exit, base and step")
        self.first = _First(settings)
        self.blocks = nn.ModuleList()
        self.exits = nn.ModuleList()
        width, layer = settings.channels, 0
        for exit_number in range(settings.exits):
            block: list[nn.Module] = []
            for _ in range(settings.base if exit_number == 0 else settings.step):
                block.append(_Layer(settings, width, layer))
                width += settings.growth
                if _scales(settings, layer) < _scales(settings, layer - 1):
                    block.append(_Transition(settings, width, _scales(settings, layer)))
                    width //= 2
                layer += 1
            self.blocks.append(nn.Sequential(*block))
            self.exits.append(_exit(settings, width * settings.factors[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of every exit for a batch of images.

        Args:
            x: Images, `(batch, 3, height, width)`.

        Returns:
            Logits, `(exits, batch, classes)`.
        """
        values = self.first(x)
        outputs = []
        for block, leave in zip(self.blocks, self.exits, strict=True):
            values = block(values)
            outputs.append(leave(values[-1]))
        return torch.stack(outputs)

    def up_to(self, number: int, *, all_exits: bool = True) -> nn.Module:
        """The part that answers at one exit, with the same weights.

        Args:
            number: Which exit, from 0.
            all_exits: Whether the classifiers before it are computed as well, as they are when an answer may be
                asked for at any time.

        Returns:
            A module from images to that exit's logits.
        """
        return _Prefix(self, number, all_exits)


class _Prefix(nn.Module):
    """An MSDNet up to one of its exits."""

    def __init__(self, net: MSDNet, number: int, all_exits: bool) -> None:
        super().__init__()
        self.first = net.first
        self.blocks = nn.ModuleList(list(net.blocks)[: number + 1])
        first = 0 if all_exits else number
        self.exits = nn.ModuleDict({str(i): net.exits[i] for i in range(first, number + 1)})

    def forward(self, x: Tensor) -> Tensor:
        values = self.first(x)
        output = x
        for i, block in enumerate(self.blocks):
            values = block(values)
            if str(i) in self.exits:
                output = self.exits[str(i)](values[-1])
        return output


def exit_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The published loss: cross entropy summed over the exits.

    Args:
        logits: Of every exit, `(exits, batch, classes)`.
        targets: Class indices, `(batch,)`.

    Returns:
        A loss per example.
    """
    exits, batch, classes = logits.shape
    each = nn.functional.cross_entropy(logits.reshape(-1, classes), targets.repeat(exits), reduction="none")
    return each.reshape(exits, batch).sum(0)


def _scales(settings: Settings, layer: int) -> int:
    """How many scales are left after a layer: equal spans of layers, each with one scale less than the one before."""
    span = math.ceil(settings.layers / len(settings.factors))
    return len(settings.factors) - max(0, layer) // span


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def _branch(inputs: int, outputs: int, factor: int, stride: int = 1) -> nn.Module:
    """A bottleneck: 1×1, then 3×3."""
    inner = min(inputs, factor * outputs)
    return nn.Sequential(*_conv(inputs, inner, 1), *_conv(inner, outputs, 3, stride))


def _exit(settings: Settings, channels: int) -> nn.Module:
    inner = settings.exit_channels or channels
    convolutions = [*_conv(channels, inner, 3, 2), *_conv(inner, inner, 3, 2)]
    return nn.Sequential(*convolutions, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(inner, settings.classes))


class _First(nn.Module):
    """The image at every scale, each a strided convolution of the one before."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        widths = [settings.channels * factor for factor in settings.factors]
        finest = _conv(3, widths[0], 7, 2) if settings.image_net else _conv(3, widths[0])
        if settings.image_net:
            finest.append(nn.MaxPool2d(3, 2, 1))
        steps = [nn.Sequential(*finest)]
        steps += [nn.Sequential(*_conv(a, b, 3, 2)) for a, b in itertools.pairwise(widths)]
        self.steps = nn.ModuleList(steps)

    def forward(self, x: Tensor) -> list[Tensor]:
        values = []
        for step in self.steps:
            x = step(x)
            values.append(x)
        return values


class _Layer(nn.Module):
    """Adds features at every scale that is left: from the same scale and, half of them, from the next finer one."""

    def __init__(self, settings: Settings, width: int, layer: int) -> None:
        super().__init__()
        factors, count = settings.factors, len(settings.factors)
        before, after = _scales(settings, layer - 1), _scales(settings, layer)
        self.dropped = before - after
        self.same, self.down = nn.ModuleList(), nn.ModuleList()
        for scale in range(count - after, count):
            fed = scale > count - before  # a finer scale was still there before this layer
            growth = settings.growth * factors[scale] // (2 if fed else 1)
            self.same.append(_branch(width * factors[scale], growth, factors[scale]))
            finer = factors[scale - 1]
            self.down.append(_branch(width * finer, growth, finer, 2) if fed else nn.Identity())

    def forward(self, values: Sequence[Tensor]) -> list[Tensor]:
        outputs = []
        for place, (same, down) in enumerate(zip(self.same, self.down, strict=True), self.dropped):
            parts = [values[place], same(values[place])]
            if place:
                parts.insert(1, down(values[place - 1]))
            outputs.append(torch.cat(parts, 1))
        return outputs


class _Transition(nn.Module):
    """Halves the channels where a scale was dropped."""

    def __init__(self, settings: Settings, width: int, scales: int) -> None:
        super().__init__()
        kept = settings.factors[len(settings.factors) - scales :]
        halves = [nn.Sequential(*_conv(width * factor, width // 2 * factor, 1)) for factor in kept]
        self.halves = nn.ModuleList(halves)

    def forward(self, values: Sequence[Tensor]) -> list[Tensor]:
        return [cast(Tensor, half(value)) for half, value in zip(self.halves, values, strict=True)]
