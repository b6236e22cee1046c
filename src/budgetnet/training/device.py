"""Where and how a run computes: one value for the device, its precision, memory format and reading of results.

A kernel on an accelerator is only queued; the host waits when it reads a value. So a step reads nothing: what is worth
recording stays on the device until a record is due, and then comes over in one copy (`Device.read`). Only the losses
of the groups are needed sooner, by Γ, which lives on the host: they leave in a copy that nobody waits for
(`Device.later`), and Γ learns from them one step later. On a CPU there is nothing to wait for, and Γ learns at once.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from budgetnet.data.augment import Augmentation
from budgetnet.data.feeds import Feed, SplitFeed, make_feed
from budgetnet.data.nested import leaves
from budgetnet.errors import UserError
from budgetnet.training.processes import Processes

M = TypeVar("M", bound=nn.Module)

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
"""Kinds of devices; one of several is said as `cuda:1`."""
PRECISIONS = ("fp32", "bf16")
FEW = 2
"""Architectures of a micro-batch on an accelerator."""
DATA_SHARE = 0.25
"""The share of an accelerator's free memory that data sets in memory may take, each of them."""


class Later:
    """A tensor on its way to the host, in a copy that the device makes when it comes to it."""

    def __init__(self, value: Tensor) -> None:
        value = value.detach()
        self._arrived: torch.Event | None = None
        self._value = value
        if value.device.type in ("cuda", "xpu"):
            self._value = torch.empty(value.shape, dtype=value.dtype, pin_memory=True)
            self._value.copy_(value, non_blocking=True)
            self._arrived = torch.Event(value.device)
            self._arrived.record()

    def value(self) -> Tensor:
        """The tensor on the host, waited for if it has not arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
            self._arrived = None
        return self._value.cpu()


@dataclass(frozen=True)
class Device:
    """A training device.

    Args:
        name: What torch calls the device, such as `cpu` or `cuda:1`.
        precision: `fp32`, or `bf16` by autocast: weights, optimizer state and batch-norm statistics stay in fp32.
        compiled: Whether networks of one fixed architecture (race, finish) are trained through `torch.compile`.
        synchronised: Whether batch norm of fixed networks sees the shares of all processes.
        architectures: Of a micro-batch of the search, at most; 0 for all of a batch at once. Gradients of the
            micro-batches of a batch add up.
        processes: This process among those of the run.
    """

    name: str = "cpu"
    precision: str = "fp32"
    compiled: bool = False
    synchronised: bool = False
    architectures: int = 0
    processes: Processes = field(default_factory=Processes)

    @classmethod
    def chosen(
        cls,
        name: str,
        precision: str = "fp32",
        compiled: bool = False,
        synchronised: bool = False,
        architectures: int | None = None,
    ) -> Device:
        """The device that a user asked for.

        Args:
            name: `auto` takes an accelerator where there is one; otherwise a name of torch's.
            precision: One of `PRECISIONS`.
            compiled: Whether fixed networks are compiled.
            synchronised: Whether batch norm of fixed networks sees the shares of all processes.
            architectures: Of a micro-batch of the search; by default `FEW` on an accelerator, where few large kernels
                are faster than many small ones, and all of a batch on a CPU.

        Returns:
            The device; a `UserError` if this machine does not have it.
        """
        check_name(name)
        if precision not in PRECISIONS:
            raise UserError(f"there is no precision {precision!r}; use {' or '.join(PRECISIONS)}")
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if name == "auto":
            name = "cpu" if found is None else found.type
        kind, _, number = name.partition(":")
        if kind != "cpu" and (found is None or found.type != kind):
            raise UserError(f"there is no {kind.upper()} device here; use --device cpu or auto")
        if number and kind != "cpu" and int(number) >= torch.accelerator.device_count():
            raise UserError(f"there are {torch.accelerator.device_count()} {kind.upper()} devices here, not {name}")
        processes = Processes.joined(kind)
        if kind in ("cuda", "xpu") and not processes.alone and not number:
            name = f"{kind}:{int(os.environ.get('LOCAL_RANK', processes.rank)) % torch.accelerator.device_count()}"
        if kind in ("cuda", "xpu") and ":" in name:
            torch.accelerator.set_device_index(int(name.partition(":")[2]))
        few = (0 if kind == "cpu" else FEW) if architectures is None else architectures
        return cls(name, precision, compiled, synchronised, few, processes)

    @property
    def type(self) -> str:
        """The kind of the device, without its number."""
        return self.name.partition(":")[0]

    @property
    def lag(self) -> int:
        """Steps after which Γ learns from a step: none where reading a loss does not wait for the device."""
        return 0 if self.type == "cpu" else 1

    def place(self, module: M, memory_format: torch.memory_format = torch.contiguous_format) -> M:
        """The module, moved to this device, with the same weights in all processes.

        Weights of convolutions go into the memory format of the inputs, except on a CPU, whose kernels reorder weights
        themselves.
        """
        module = module.to(self.name)
        if self.type != "cpu" and memory_format is torch.channels_last:
            module = module.to(memory_format=memory_format)  # type: ignore[call-overload]
        self.processes.same(module)
        return module

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of a forward pass."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.type, torch.bfloat16)

    def runnable(self, module: nn.Module) -> nn.Module:
        """A module as it is run in training: compiled if that was asked for."""
        if not self.compiled:
            return module
        compiled: Any = torch.compile(module, dynamic=False)
        return compiled  # type: ignore[no-any-return]

    def read(self, values: Sequence[Tensor]) -> list[float]:
        """The numbers in these tensors of one element each: the one place of a step where the host waits."""
        if not values:
            return []
        dtype = torch.float32 if self.type == "mps" else torch.float64
        found: list[float] = torch.stack([value.detach().to(dtype).reshape(()) for value in values]).tolist()
        return found

    def later(self, value: Tensor) -> Later:
        """A tensor on its way to the host."""
        return Later(value)

    def wait(self) -> None:
        """Until everything that was queued is done, for timing."""
        if self.type not in ("cpu", "meta"):
            torch.accelerator.synchronize(self.name)

    def random_state(self) -> dict[str, Tensor]:
        """The states of torch's random numbers, on the host and on the device."""
        states = {"cpu": torch.get_rng_state()}
        if self.type not in ("cpu", "meta"):
            states["device"] = torch.get_device_module(self.type).get_rng_state()
        return states

    def set_random_state(self, states: dict[str, Tensor]) -> None:
        """Goes on from a state; one of another kind of device is left out."""
        torch.set_rng_state(states["cpu"])
        if "device" in states and self.type not in ("cpu", "meta"):
            torch.get_device_module(self.type).set_rng_state(states["device"])

    def feed(
        self,
        source: Any,
        batch_size: int,
        seed: int,
        augmentation: Augmentation | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
        workers: int | None = None,
    ) -> Feed:
        """Batches of some data that arrive on this device in the memory format that the network wants.

        Args:
            source: Tensors, arrays, a split, a torch Dataset or a DataLoader.
            batch_size: Examples in a training batch.
            seed: What the order of the examples and their augmentation follow from.
            augmentation: Random changes of training examples; none if not given.
            memory_format: The layout of images.
            workers: Processes that read a map-style Dataset.

        Returns:
            The feed. Examples in memory live on the device if they fit there.
        """
        feed = make_feed(source, batch_size, seed, augmentation, self.name, memory_format, workers)
        if isinstance(feed, SplitFeed) and self._has_room(feed):
            feed.split = feed.split.to(self.name)
        return feed

    def _has_room(self, feed: SplitFeed) -> bool:
        if self.type == "cpu":
            return False
        tensors = [*leaves(feed.split.inputs), *leaves(feed.split.targets)]
        size: int = sum(tensor.nbytes for tensor in tensors)
        return size < DATA_SHARE * self._free_memory()

    def _free_memory(self) -> float:
        if self.type in ("cuda", "xpu"):
            free, _ = torch.get_device_module(self.type).mem_get_info(self.name)
            return float(free)
        return float(torch.mps.recommended_max_memory()) if self.type == "mps" else float("inf")


def check_name(name: str) -> None:
    """Refuses what is no name of a device, whether or not this machine has one."""
    if not re.fullmatch(rf"({'|'.join(DEVICES[1:])})(:[0-9]{{1,3}})?|auto", name):
        raise UserError(f"there is no device {name!r}; use {', '.join(DEVICES)}, or one of several as cuda:1")
