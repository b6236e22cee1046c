"""What a trainer iterates: the same batches again for the same epoch, from any batch on.

Tensors and arrays stay in memory. A map-style `Dataset` is read afresh in every epoch, by a `DataLoader` that is made
here; each of its examples is read with random numbers (of torch, numpy and `random`) that follow from (seed, epoch,
index), in whatever process. Streams and a user's own `DataLoader` start each epoch from random numbers that follow from
(seed, epoch), and a resumed epoch skips what was seen: that is exact if they draw from these alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from budgetnet.data.augment import Augmentation
from budgetnet.data.batching import batches, is_image, moved, prepare
from budgetnet.data.convert import as_columns, as_split, check_input, check_map_style, check_target, parted
from budgetnet.data.nested import Nested, leaves, mapped, rows
from budgetnet.data.reading import Reading, seeded, workers_for
from budgetnet.data.seeds import generator_of, seed_of
from budgetnet.data.split import Split
from budgetnet.errors import UserError

Batch = tuple[Nested, Nested]
"""Inputs and targets."""
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
        self.scaled = is_image(split.inputs)
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
        size = evaluation_size(split.take(1).inputs)
        found = batches(split, size, seed=0, epoch=0, shuffle=False, device=self.device)
        return ((laid_out(inputs, self.memory_format), targets) for inputs, targets in found)


class DatasetFeed:
    """Batches of a map-style data set, whose examples are read anew in every epoch.

    `workers` processes read them: 0 reads in this one, None decides by the time that a few examples take.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        seed: int,
        device: str = "cpu",
        memory_format: torch.memory_format = torch.contiguous_format,
        workers: int | None = None,
    ) -> None:
        self.count = check_map_style(dataset)
        self.reading = Reading(dataset, seed)
        self.batch_size = min(batch_size, self.count)
        self.seed = seed
        self.device = device
        self.memory_format = memory_format
        self.workers = workers_for(self.reading, self.count) if workers is None else workers
        first = self.reading.batch([(-1, 0)])[0]
        self.evaluated = evaluation_size(first)
        self.scaled = is_image(first)

    @property
    def steps(self) -> int:
        """Incomplete batches are left out: batch norm wants them alike."""
        return self.count // self.batch_size

    def training(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """See `Feed`."""
        order = torch.randperm(self.count, generator=generator_of("order", self.seed, epoch)).tolist()
        firsts = range(0, self.steps * self.batch_size, self.batch_size)[start:]
        return self._read([[(epoch, i) for i in order[first : first + self.batch_size]] for first in firsts])

    def evaluation(self, limit: int | None = None) -> Iterator[Batch]:
        """See `Feed`. Random transforms are the same in every evaluation."""
        count = self.count if limit is None else min(limit, self.count)
        firsts = range(0, count, self.evaluated)
        return self._read([[(-1, i) for i in range(f, min(f + self.evaluated, count))] for f in firsts])

    def _read(self, keys: list[list[tuple[int, int]]]) -> Iterator[Batch]:
        loader = self.reading.loader(keys, self.workers)
        for batch in loader:
            yield _delivered(self.reading.whole(batch), self.device, self.memory_format)


class LoaderFeed:
    """Batches of a user's DataLoader, whose random numbers are seeded anew for each epoch."""

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
        self.scaled = False
        """Whether images were scaled, which is known when a batch was seen."""
        if self.steps == 0:
            raise UserError("the data loader gives no batch; give it examples, or drop_last=False.")

    @property
    def steps(self) -> int:
        """The loader's own length."""
        try:
            return len(self.loader)
        except TypeError:
            raise UserError(
                "the length of the data loader is not known; give its data set a __len__ that states its examples."
            ) from None

    def training(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """See `Feed`."""
        seen = 0
        for batch in itertools.islice(self._seeded(seed_of("loader", self.seed, epoch), epoch), self.steps):
            seen += 1
            if seen > start:
                yield self._moved(batch)
        if seen < self.steps:
            raise UserError(
                f"the data ended after {seen} of the {self.steps} batches that their length promises; "
                "state the true number of examples."
            )

    def evaluation(self, limit: int | None = None) -> Iterator[Batch]:
        """See `Feed`."""
        seen = 0
        for batch in itertools.islice(self._seeded(self.seed, 0), self.steps):  # a loader may go on beyond its length
            if limit is not None and seen >= limit:
                return
            inputs, targets = self._moved(batch)
            seen += rows(inputs)
            yield inputs, targets
        if seen == 0:
            raise UserError("the data gave no batch; a generator is used up after one pass: give a data set instead.")

    def _seeded(self, seed: int, epoch: int) -> Iterator[Any]:
        """The loader's batches. It draws random numbers whenever it likes; everybody else's are left alone."""
        for thing in (self.loader.dataset, self.loader.sampler):
            if hasattr(thing, "set_epoch"):
                thing.set_epoch(epoch)
        for generator in {getattr(self.loader, "generator", None), getattr(self.loader.sampler, "generator", None)}:
            if generator is not None:
                generator.manual_seed(seed)
        iterator: Iterator[Any] | None = None
        state = None
        while True:
            with seeded(seed, state) as numbers:
                try:
                    iterator = iter(self.loader) if iterator is None else iterator
                    batch = next(iterator, None)
                except UserError:
                    raise
                except Exception as error:  # a user's data set may raise anything
                    raise UserError(f"the data loader failed ({_reason(error)}); correct its data set.") from error
                state = numbers()
            if batch is None:
                return
            yield batch

    def _moved(self, batch: Any) -> Batch:
        inputs, targets = parted(batch, "a batch of the data loader")
        for leaf in (*leaves(inputs), *leaves(targets)):
            if not isinstance(leaf, Tensor):
                raise UserError(f"a batch of the data loader holds {type(leaf).__name__}; give tensors of numbers.")
        self.scaled = is_image(inputs)
        if rows(inputs) != rows(targets):
            raise UserError(
                f"a batch of the data loader has {rows(inputs)} inputs and {rows(targets)} targets; give equally many."
            )
        return _delivered((mapped(check_input, inputs), mapped(check_target, targets)), self.device, self.memory_format)


def _delivered(batch: Batch, device: str, memory_format: torch.memory_format) -> Batch:
    inputs, targets = batch
    return laid_out(prepare(moved(inputs, device)), memory_format), moved(targets, device)


def _reason(error: Exception) -> str:
    """The first line of an error that says something, without the report of a worker's process around it."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[-1] if text else 'no reason given'}"


def evaluation_size(inputs: Nested) -> int:
    """Examples in an evaluation batch, from the inputs of one."""
    values: int = sum(leaf.numel() for leaf in leaves(inputs))
    return min(max(EVALUATION_VALUES // max(values, 1), 4), EVALUATION_BATCH)


def laid_out(inputs: Nested, memory_format: torch.memory_format) -> Nested:
    """Images in this memory format, by their strides too where one channel leaves these open; others as they are."""
    if memory_format is not torch.channels_last:
        return inputs
    return mapped(
        lambda x: torch.empty_like(x, memory_format=memory_format).copy_(x) if x.dim() == 4 else x,
        inputs,
    )


def make_feed(
    source: Any,
    batch_size: int,
    seed: int,
    augmentation: Augmentation | None = None,
    device: str = "cpu",
    memory_format: torch.memory_format = torch.contiguous_format,
    workers: int | None = None,
) -> Feed:
    """A feed of tensors, arrays, a `Split`, a torch `Dataset` or a `DataLoader`.

    Args:
        source: Where the examples come from; a `Feed` is returned as it is.
        batch_size: Training examples in a batch; a `DataLoader` has its own.
        seed: Everything random follows from it.
        augmentation: For examples in memory, applied to training batches.
        device: Where the batches are put.
        memory_format: That of images.
        workers: Processes that read a map-style `Dataset`; None decides by the time that an example takes.

    Returns:
        The feed.
    """
    if isinstance(source, DataLoader):
        return LoaderFeed(source, seed, device, memory_format)
    if hasattr(source, "training") and hasattr(source, "evaluation"):
        return cast(Feed, source)
    if isinstance(source, IterableDataset):
        return LoaderFeed(_stream_loader(source, batch_size), seed, device, memory_format)
    if as_columns(source) is not None:
        return SplitFeed(as_split(source), batch_size, seed, augmentation, device, memory_format)
    if augmentation is not None:
        raise UserError("augmentation is for tensors in memory; put random transforms into the data set itself.")
    return DatasetFeed(source, batch_size, seed, device, memory_format, workers)


def _stream_loader(source: IterableDataset[Any], batch_size: int) -> DataLoader[Any]:
    """Batches of a stream, whose length must be known for schedules and for exact resumption."""
    if not hasattr(source, "__len__"):
        raise UserError(
            f"{type(source).__name__} does not say how many examples it has; give it a __len__ that states them."
        )
    return DataLoader(source, batch_size=min(batch_size, max(len(source), 1)), collate_fn=Reading.collated)
