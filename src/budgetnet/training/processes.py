"""The processes of one run, as torchrun starts them: what they share out, agree on and average.

All processes go through the same phases in the same order, each on its share of every batch. After each step they hold
the same weights, batch-norm statistics and Γ, to the bit, so that the state of the first is the state of all.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from budgetnet.data.nested import Nested, rows, select
from budgetnet.errors import UserError, reason

T = TypeVar("T")

PATIENCE = datetime.timedelta(minutes=30)
"""For a process that does not answer; one that ended is noticed at once. The first may measure for minutes."""


@dataclass(frozen=True)
class Processes:
    """This process among those of a run.

    Args:
        rank: Its number; the first, 0, writes, measures and certifies.
        count: How many there are.
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def joined(cls, accelerator: bool = False) -> Processes:
        """The processes of an initialised group, or those that torchrun has started; otherwise this one alone.

        Args:
            accelerator: Whether tensors on CUDA devices are exchanged, too.
        """
        if not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
                return cls()
            distributed.init_process_group("cpu:gloo,cuda:nccl" if accelerator else "gloo", timeout=PATIENCE)
        count = distributed.get_world_size()
        return cls(distributed.get_rank(), count) if count > 1 else cls()

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.count == 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, batch: tuple[Nested, Nested]) -> tuple[Nested, Nested]:
        """This process's part of a batch. Parts are of equal size; what cannot be shared evenly is left out."""
        if self.alone:
            return batch
        size = rows(batch[0]) // self.count
        if size == 0:
            raise UserError(
                f"{self.count} processes cannot share a batch of {rows(batch[0])} examples; use a larger --batch-size "
                "or fewer processes"
            )
        part = slice(self.rank * size, (self.rank + 1) * size)
        return select(batch[0], part), select(batch[1], part)

    def agree(self, *values: float) -> list[float]:
        """The largest of each value over all processes."""
        if self.alone:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return [float(value) for value in found]

    def of_first(self, *values: float) -> list[float]:
        """The values of the first process, where others may differ in their last bits."""
        if self.alone:
            return list(values)
        found = torch.tensor(values, dtype=torch.float64)
        distributed.broadcast(found, 0)
        return [float(value) for value in found]

    def from_first(self, function: Callable[[], T]) -> T:
        """What a function gives in the first process, which alone calls it; its `UserError` is raised in all."""
        if self.alone:
            return function()
        told: list[Any] = [None, None]
        if self.first:
            try:
                told[0] = function()
            except UserError as error:
                told[1] = str(error)
        distributed.broadcast_object_list(told, 0)
        if told[1] is not None:
            raise UserError(told[1])
        return told[0]  # type: ignore[no-any-return]

    def gather(self, value: Tensor) -> Tensor:
        """The rows of all processes, in the order of their ranks; equally many of each."""
        if self.alone:
            return value
        sent = (value.to(torch.uint8) if value.dtype is torch.bool else value).contiguous()
        parts = [torch.empty_like(sent) for _ in range(self.count)]
        distributed.all_gather(parts, sent)
        return torch.cat(parts).to(value.dtype)

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors by their mean over all processes (whole numbers by the largest): one exchange a type."""
        if self.alone:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype is dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
            mean = dtype.is_floating_point
            distributed.all_reduce(flat, distributed.ReduceOp.SUM if mean else distributed.ReduceOp.MAX)
            flat = flat / self.count if mean else flat
            for tensor, part in zip(alike, torch.split(flat, [t.numel() for t in alike]), strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    def average_step(self, module: nn.Module, observed: Sequence[Tensor]) -> bool:
        """Averages the gradients and statistics of a step; parameters that no process has used get no gradient.

        Args:
            module: The module, after its backward pass.
            observed: Further values, such as the loss.

        Returns:
            Whether there is any gradient.
        """
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        used = self.agree(*(float(parameter.grad is not None) for parameter in parameters)) if parameters else []
        gradients = []
        for parameter, any_used in zip(parameters, used, strict=True):
            if any_used:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(parameter.grad)
        self.average([*gradients, *module.buffers(), *observed])
        return bool(gradients)

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Says in one sentence that another process has ended."""
        try:
            yield
        except (distributed.DistError, RuntimeError) as error:
            if self.alone or not re.search("onnection|gloo|NCCL|timed out", str(error)):
                raise
            raise UserError(
                f"process {self.rank} of {self.count} has lost another one ({reason(error)}); the last checkpoint is "
                "whole: go on with --resume"
            ) from error


ALONE = Processes()
"""One process."""
