"""Batch norm over the shares of all processes, for networks that all of them train together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed, nn

from budgetnet.training.processes import Processes

BatchNorm = nn.modules.batchnorm._BatchNorm


class Mean(torch.autograd.Function):
    """The mean of a tensor over all processes; so is the gradient, since every process depends on the mean alike."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, count: int) -> Tensor:
        """The mean, the same in all processes."""
        ctx.count = count
        return _mean(value, count)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """The mean of the gradients."""
        return _mean(gradients[0], ctx.count), None


def _mean(value: Tensor, count: int) -> Tensor:
    found = value.detach().clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(found)
    return found / count


def normalise(norm: BatchNorm, count: int, x: Tensor) -> Tensor:
    """Batch norm of a module over equal shares of a batch.

    Args:
        norm: The module.
        count: How many processes have a share; each of them calls this at the same time.
        x: This process's share (examples × channels × …).

    Returns:
        What the module gives for this share in a batch of all shares; its statistics become those of the batch.
    """
    if not norm.training:
        return type(norm).forward(norm, x)
    shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
    around = [0, *range(2, x.dim())]
    values = x.float()
    local = values.mean(around)
    mean: Tensor = Mean.apply(local, count)  # type: ignore[no-untyped-call]
    spread = values.var(around, correction=0) + (local - mean).square()
    variance: Tensor = Mean.apply(spread, count)  # type: ignore[no-untyped-call]
    if norm.track_running_stats and norm.running_mean is not None and norm.running_var is not None:
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        rate = 1 / norm.num_batches_tracked.float() if norm.momentum is None else norm.momentum
        total = count * values.numel() // values.shape[1]
        norm.running_mean.mul_(1 - rate).add_(rate * mean.detach())
        norm.running_var.mul_(1 - rate).add_(rate * variance.detach() * (total / max(total - 1, 1)))
    out = (values - mean.view(shape)) * (variance.view(shape) + norm.eps).rsqrt()
    if norm.weight is not None:
        out = out * norm.weight.view(shape) + norm.bias.view(shape)
    return out.to(x.dtype)


@contextmanager
def synchronised(module: nn.Module, processes: Processes) -> Iterator[None]:
    """Within the block, batch norm of a network sees the shares of all processes.

    Args:
        module: The same network in every process. A super network's architectures differ from process to process, so
            that its batch norm stays local.
        processes: The processes; nothing changes if they do not share batches.
    """
    norms = [part for part in module.modules() if isinstance(part, BatchNorm)] if processes.together else []
    for norm in norms:
        norm.forward = partial(normalise, norm, processes.count)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward
