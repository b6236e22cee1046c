"""The processes of one run, as torchrun starts them: what they share out, agree on and average.

All processes go through the same phases in the same order, each on its share of every batch. After each step they hold
the same weights, batch-norm statistics and Γ, to the bit, so that the state of the first is the state of all. In a race
they may work apart for a while, each on a network of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.rendezvous import rendezvous

from budgetnet.data.nested import Nested, rows, select
from budgetnet.errors import UserError, reason

T = TypeVar("T")

PATIENCE = datetime.timedelta(minutes=30)
"""For a process that does not answer; one that ended is noticed at once. The first may measure for minutes."""
BACKENDS = {"cuda": "cpu:gloo,cuda:nccl", "xpu": "cpu:gloo,xpu:xccl"}
"""What carries tensors between processes, by the kind of the device; gloo does elsewhere."""
LETTING_GO = 0.25
"""Seconds at the end of a process in which its other threads can have the interpreter."""
IDLE = 0.25
"""The largest share of processes that may be idle while each of the others trains a network of its own."""


@dataclass(frozen=True)
class Processes:
    """This process among those of a run.

    Args:
        rank: Its number; the first, 0, writes, measures and certifies.
        count: How many there are.
        apart: Whether each trains a network of its own for now: nothing is shared out or averaged.
    """

    rank: int = 0
    count: int = 1
    apart: bool = False

    @classmethod
    def joined(cls, kind: str = "cpu") -> Processes:
        """The processes of an initialised group, or those that torchrun has started; otherwise this one alone.

        Args:
            kind: The kind of the device that tensors are on.
        """
        if not distributed.is_available():
            return cls()
        if not distributed.is_initialized():
            if expected() < 2:
                return cls()
            _meet(BACKENDS.get(kind, "gloo"))
        count = distributed.get_world_size()
        return cls(distributed.get_rank(), count) if count > 1 else cls()

    @staticmethod
    def leave() -> None:
        """Closes the connections to the other processes.

        Torch may still refer to the group, so that gloo's threads go on. One of them lets go of the last tensor that
        was exchanged, for which it needs the interpreter; a process that is gone by then ends with SIGABRT.
        """
        if distributed.is_available() and distributed.is_initialized():
            distributed.destroy_process_group()
            atexit.register(time.sleep, LETTING_GO)

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.count == 1

    @property
    def together(self) -> bool:
        """Whether several processes share every batch."""
        return self.count > 1 and not self.apart

    def split_up(self) -> Processes:
        """The same processes, each of which trains a network of its own."""
        return replace(self, apart=True)

    def better_apart(self, networks: int) -> bool:
        """Whether so many networks are trained faster one in a process than one after the other by all.

        A process that trains alone sends nothing and waits for nobody, but some are idle if the networks do not come
        out even.
        """
        rounds = -(-networks // self.count)
        return not self.alone and networks > 1 and 1 - networks / (rounds * self.count) <= IDLE

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, batch: tuple[Nested, Nested]) -> tuple[Nested, Nested]:
        """This process's part of a batch. Parts are of equal size; what cannot be shared evenly is left out."""
        if not self.together:
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
        if not self.together:
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

    def gather_values(self, value: T) -> list[T]:
        """The values of all processes, in the order of their ranks; tensors in them belong on the host."""
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.count
        distributed.all_gather_object(found, value)
        return found

    def every(self, items: Iterable[T]) -> Iterator[T]:
        """This process's share of some items: every so many, from its rank on."""
        return itertools.islice(items, self.rank, None, self.count) if self.together else iter(items)

    def same(self, module: nn.Module) -> None:
        """Gives the module the weights that it has in the first process."""
        self._copy_first([*module.parameters(), *module.buffers()])

    def _copy_first(self, tensors: Sequence[Tensor]) -> None:
        """Gives tensors the values that they have in the first process."""
        if self.alone:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype is dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
            distributed.broadcast(flat, 0)
            _spread(flat, alike)

    def check_same(self, module: nn.Module) -> None:
        """Refuses to go on if the processes hold different weights: one of them would be saved for all.

        The counters of the first become those of all.
        """
        if not self.together:
            return
        self._copy_first([buffer for buffer in module.buffers() if not buffer.is_floating_point()])
        total = float(sum(parameter.detach().double().sum().cpu() for parameter in module.parameters()))
        highest, lowest = self.agree(total, -total)
        if highest != -lowest:
            raise UserError(
                "the processes of this run hold different weights; give all of them the same code, versions and "
                "settings, and go on from the last checkpoint with --resume"
            )

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces tensors by their mean over all processes (whole numbers by the largest): one exchange a type."""
        if self.alone:
            return
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            alike = [tensor for tensor in tensors if tensor.dtype is dtype]
            flat = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
            mean = dtype.is_floating_point
            distributed.all_reduce(flat, distributed.ReduceOp.SUM if mean else distributed.ReduceOp.MAX)
            _spread(flat.div_(self.count) if mean else flat, alike)

    def average_step(self, module: nn.Module, observed: Sequence[Tensor]) -> bool:
        """Averages the gradients and statistics of a step; parameters that no process has used get no gradient.

        Counters, such as that of the batches that a batch norm has seen, are each process's own until a checkpoint.

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
        statistics = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.average([*gradients, *statistics, *observed])
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


def expected() -> int:
    """How many processes torchrun has started for this run; 1 if it has not."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def _meet(backend: str) -> None:
    """Meets the other processes that torchrun has started.

    After a restart torchrun's store may still hold the addresses of processes that are gone, so that every attempt has
    keys of its own.
    """
    store, rank, count = next(rendezvous("env://", timeout=PATIENCE))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = distributed.PrefixStore(f"budgetnet-{attempt}", store)  # type: ignore[attr-defined]
    distributed.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)


def _spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Puts the values of one flat tensor into tensors, in their order."""
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    torch._foreach_copy_(
        [tensor.detach() for tensor in tensors],
        [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)],
    )


ALONE = Processes()
"""One process."""
