"""What the training loop iterates: the same batches again for the same epoch, from any batch on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from budgetnet.data.augment import Augmentation
from budgetnet.data.batching import batches
from budgetnet.data.convert import as_split
from budgetnet.data.split import Split
from budgetnet.errors import UserError

Batch = tuple[Tensor, Tensor]
EVALUATION_BATCH = 256
EVALUATION_VALUES = 256 * 3 * 32 * 32
"""Input values in an evaluation batch: large images are judged a few at a time, as memory wants it."""


class Feed(Protocol):
    """Batches of one part of the data."""

    @property
    def steps(self) -> int:
        """Training batches in an epoch."""
        ...

    def training(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Shuffled, augmented batches of an epoch, from batch `start` on."""
        ...

    def evaluation(self, limit: int | None = None) -> Iterator[Batch]:
        """At least the first `limit` examples, in order and as they are."""
        ...


class SplitFeed:
    """Batches of examples in memory."""

    def __init__(
        self,
        split: Split,
        batch_size: int,
        seed: int,
        augmentation: Augmentation | None = None,
        device: str = "cpu",
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.split = split
        self.batch_size = min(batch_size, len(split))
        self.seed = seed
        self.augmentation = augmentation
        self.device = device
        self.memory_format = memory_format

    @property
    def steps(self) -> int:
        """Incomplete batches are left out: batch norm wants them alike."""
        return len(self.split) // self.batch_size

    def training(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """See `Feed`."""
        found = batches(
            self.split,
            self.batch_size,
            seed=self.seed,
            epoch=epoch,
            augmentation=self.augmentation,
            shuffle=True,
            drop_last=True,
            start=start,
            device=self.device,
        )
        return ((laid_out(inputs, self.memory_format), targets) for inputs, targets in found)

    def evaluation(self, limit: int | None = None) -> Iterator[Batch]:
        """See `Feed`."""
        split = self.split if limit is None else self.split.take(min(limit, len(self.split)))
        fitting = EVALUATION_VALUES // max(split.inputs[:1].numel(), 1)
        size = min(max(fitting, 4), EVALUATION_BATCH)
        found = batches(split, size, seed=0, epoch=0, shuffle=False, device=self.device)
        return ((laid_out(inputs, self.memory_format), targets) for inputs, targets in found)


class LoaderFeed:
    """Batches of a user's DataLoader, whose randomness (torch's generator) is seeded anew for each epoch."""

    def __init__(
        self,
        loader: DataLoader[Any],
        seed: int,
        device: str = "cpu",
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        self.loader = loader
        self.seed = seed
        self.device = device
        self.memory_format = memory_format

    @property
    def steps(self) -> int:
        """The loader's own length."""
        return len(self.loader)

    def training(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """See `Feed`."""
        return itertools.islice(self._moved(self._seeded(self.seed * 1_000_003 + epoch)), start, None)

    def evaluation(self, limit: int | None = None) -> Iterator[Batch]:
        """See `Feed`."""
        seen = 0
        for inputs, targets in self._moved(self._seeded(self.seed)):
            if limit is not None and seen >= limit:
                return
            seen += len(inputs)
            yield inputs, targets

    def _seeded(self, seed: int) -> Iterator[Any]:
        """The loader's batches. It draws from torch's generator whenever it likes, which gets its own state back."""
        iterator: Iterator[Any] | None = None
        state = torch.Generator().manual_seed(seed).get_state()
        for generator in {getattr(self.loader, "generator", None), getattr(self.loader.sampler, "generator", None)}:
            if generator is not None:
                generator.manual_seed(seed)
        while True:
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                iterator = iter(self.loader) if iterator is None else iterator
                batch = next(iterator, None)
                state = torch.get_rng_state()
            if batch is None:
                return
            yield batch

    def _moved(self, iterator: Iterable[Any]) -> Iterator[Batch]:
        for batch in iterator:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise UserError(
                    f"the data loader gave a {type(batch).__name__}; it must give pairs of inputs and targets"
                )
            yield laid_out(batch[0].to(self.device), self.memory_format), batch[1].to(self.device)


def laid_out(inputs: Tensor, memory_format: torch.memory_format) -> Tensor:
    """Images in this memory format, by their strides too where one channel leaves these open; others as they are."""
    if inputs.dim() != 4 or memory_format is not torch.channels_last:
        return inputs
    return torch.empty_like(inputs, memory_format=memory_format).copy_(inputs)


def make_feed(
    source: Any,
    batch_size: int,
    seed: int,
    augmentation: Augmentation | None = None,
    device: str = "cpu",
    memory_format: torch.memory_format = torch.contiguous_format,
) -> Feed:
    """A feed of tensors, arrays, a Split, a torch Dataset or a DataLoader."""
    if isinstance(source, DataLoader):
        return LoaderFeed(source, seed, device, memory_format)
    if hasattr(source, "training") and hasattr(source, "evaluation"):
        return cast(Feed, source)
    return SplitFeed(as_split(source), batch_size, seed, augmentation, device, memory_format)
