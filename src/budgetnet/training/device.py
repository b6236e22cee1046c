"""Where a run computes: one value that owns moving modules and inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from budgetnet.data.augment import Augmentation
from budgetnet.data.feeds import Feed, make_feed
from budgetnet.errors import UserError

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Device:
    """A training device. Everything is computed in fp32.

    Args:
        name: What torch calls the device, such as `cpu` or `cuda:1`.
    """

    name: str = "cpu"

    @classmethod
    def chosen(cls, name: str) -> Device:
        """The device that a user asked for.

        Args:
            name: `auto` takes an accelerator where there is one; otherwise a name of torch's.

        Returns:
            The device; a `UserError` if this machine does not have it.
        """
        if name == "cuda" and not torch.cuda.is_available():
            raise UserError("there is no CUDA device here; use --device cpu or auto")
        return cls(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)

    def place(self, module: M) -> M:
        """The module, moved to this device."""
        return module.to(self.name)

    def move(self, value: Tensor) -> Tensor:
        """A tensor on this device."""
        return value.to(self.name, non_blocking=True)

    def feed(
        self,
        source: Any,
        batch_size: int,
        seed: int,
        augmentation: Augmentation | None = None,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> Feed:
        """Batches of some data that arrive on this device in the memory format that the network wants.

        Args:
            source: Tensors, arrays, a split, a torch Dataset or a DataLoader.
            batch_size: Examples in a training batch.
            seed: What the order of the examples and their augmentation follow from.
            augmentation: Random changes of training examples; none if not given.
            memory_format: The layout of images.

        Returns:
            The feed.
        """
        return make_feed(source, batch_size, seed, augmentation, self.name, memory_format)
