"""What the speed benchmarks run: two sizes, training steps, architectures of a given share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks._resnet import CLASSES
from budgetnet.costs import macs
from budgetnet.data.feeds import laid_out
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric
from budgetnet.strategies.recipes import fast
from budgetnet.training.tasks import Task

BATCH = 128
SHARES = (0.2, 0.45, 0.7)
CALIBRATION = 512
"""Architectures behind the mean share of a logit."""


@dataclass(frozen=True)
class Size:
    """An input side and the channels of the first group."""

    side: int
    channels: int

    def __str__(self) -> str:
        return f"{self.side}×{self.side}, {self.channels} channels"

    def fabric(self, width: int) -> SuperNetwork:
        """The ResNet fabric of this size."""
        torch.manual_seed(0)
        return resnet_fabric(width, self.channels, classes=CLASSES, input_shape=(3, self.side, self.side))

    def batch(self, count: int = BATCH) -> tuple[Tensor, Tensor]:
        """Random images and labels, as the loop gives them to a fabric: time does not depend on their values."""
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(count, 3, self.side, self.side, generator=generator) * 2 - 1
        images = laid_out(images, self.fabric(1).memory_format)
        return images, torch.randint(CLASSES, (count,), generator=generator)


LARGE, SMALL = Size(32, 16), Size(16, 8)


def optimizer_of(module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of the default recipe, at a rate that keeps random data harmless."""
    weights = fast().weights
    return torch.optim.SGD(
        module.parameters(),
        1e-4,
        weights.momentum,
        weight_decay=weights.weight_decay,
        nesterov=True,
        foreach=True,
    )


def hand_step(module: nn.Module, batch: tuple[Tensor, Tensor]) -> Callable[[], None]:
    """A training step in plain torch."""
    optimizer = optimizer_of(module.train())
    inputs, targets = batch

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def fabric_step(
    net: nn.Module, batch: tuple[Tensor, Tensor], gates: Callable[[], Tensor | None], optimizer: torch.optim.Optimizer
) -> Callable[[], None]:
    """A training step of the super network as the loop does it, on what `gates` gives anew at every call."""
    inputs, targets = batch
    task = Task()
    net.train()

    def step() -> None:
        chosen = gates()
        optimizer.zero_grad(set_to_none=True)
        outputs = net(inputs, chosen)
        groups = 1 if chosen is None else len(chosen)
        task.group_losses(outputs, targets, groups).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def prepare(net: nn.Module, batch: tuple[Tensor, Tensor], groups: int, optimizer: torch.optim.Optimizer) -> None:
    """A full step on every number of rows that so many groups can make together, as a search has had after its start.

    Convolutions are prepared once for each number of rows, and remembered: that is no part of what is timed.
    """
    for count in range(1, groups + 1):
        rows = count * len(batch[0]) // groups
        fabric_step(net, (batch[0][:rows], batch[1][:rows]), lambda: None, optimizer)()


class Sampled:
    """Architectures as a search draws them, new at every call, whose mean share of the full macs is near a target.

    One that does not connect computes nothing, and counts with a share of zero.
    """

    def __init__(self, net: SuperNetwork, share: float, groups: int, seed: int = 0) -> None:
        self.graph, self.cost, self.groups = net.graph, macs(net), groups
        self.full = self.cost(net.graph.full)
        self.generator = torch.Generator().manual_seed(seed)
        self.stratified = groups < BATCH  # the paper draws one architecture per example, each by itself
        self.distribution = EdgeDistribution(net.graph, self._logit(share))
        self.shares: list[float] = []
        """The mean live share of each set that was given."""

    def __call__(self) -> Tensor:
        gates = self.distribution.sample(self.groups, self.generator, stratified=self.stratified).gates
        self.shares.append(self._share(gates))
        return gates

    def take(self, count: int) -> Iterator[Tensor]:
        """So many sets made beforehand, so that making them is no part of what is timed."""
        return iter([self() for _ in range(count)])

    def _share(self, gates: Tensor) -> float:
        live = self.graph.live(gates)
        return float((self.cost.evaluate(live) * live.any(1)).mean()) / self.full

    def _logit(self, share: float) -> float:
        """One logit for all edges, by bisection."""
        low, high = -4.0, 6.0
        for _ in range(20):
            middle = (low + high) / 2
            trial = EdgeDistribution(self.graph, middle)
            found = self._share(trial.sample(CALIBRATION, torch.Generator().manual_seed(1)).gates)
            low, high = (middle, high) if found < share else (low, middle)
        return low
