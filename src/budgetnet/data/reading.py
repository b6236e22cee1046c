"""Examples of a user's data set read by a `DataLoader`, with random numbers that follow from (seed, epoch, index)."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from budgetnet.data.convert import as_example, check_input, check_target
from budgetnet.data.nested import Nested, mapped, stacked
from budgetnet.data.seeds import seed_of
from budgetnet.errors import UserError

Key = tuple[int, int]
"""The epoch and the number of an example."""
Numbers = tuple[Any, Any, Any]
"""The states of the random numbers of torch, numpy and Python."""
TIMED = 4
"""Examples that are read to find out how long one takes."""
SLOW_EPOCH = 2.0
"""Seconds of reading an epoch from which on processes of their own are worth their start."""
MAX_WORKERS = 8


class _Failure(str):
    """What went wrong in a worker: an exception would come back wrapped into the report of a process."""


@contextlib.contextmanager
def seeded(seed: int, state: Numbers | None = None) -> Iterator[Callable[[], Numbers]]:
    """Random numbers from this seed, or from a state taken before; the ones of everybody else are left alone.

    It gives a function that takes the present state.
    """
    before = _numbers()
    try:
        if state is None:
            torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
            np.random.seed(seed % 2**32)
            random.seed(seed)
        else:
            _restore(state)
        yield _numbers
    finally:
        _restore(before)


def _numbers() -> Numbers:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _restore(state: Numbers) -> None:
    torch.set_rng_state(state[0])
    np.random.set_state(state[1])
    random.setstate(state[2])


class Reading(Dataset[Any]):
    """A data set whose items are whole batches, by the keys of their examples."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset = dataset
        self.seed = seed

    def __getitem__(self, keys: Sequence[Key]) -> Any:
        try:
            return self.batch(keys)
        except UserError as error:
            return _Failure(error)

    def batch(self, keys: Sequence[Key]) -> tuple[Nested, Nested]:
        """The inputs and targets of these examples."""
        return self.collated([self._example(*key) for key in keys], [index for _, index in keys])

    @staticmethod
    def collated(examples: Sequence[Any], indices: Sequence[int] | None = None) -> tuple[Nested, Nested]:
        """Examples as a checked batch."""
        places = range(len(examples)) if indices is None else indices
        pairs = [as_example(example, index) for example, index in zip(examples, places, strict=True)]
        inputs, targets = (
            stacked([pair[k] for pair in pairs], places, what) for k, what in enumerate(("input", "target"))
        )
        return mapped(check_input, inputs), mapped(check_target, targets)

    def _example(self, epoch: int, index: int) -> Any:
        with seeded(seed_of("example", self.seed, epoch, index)):
            try:
                return self.dataset[index]
            except UserError:
                raise
            except Exception as error:  # a user's data set may raise anything
                name = type(self.dataset).__name__
                raise UserError(
                    f"{name} raised {type(error).__name__} for example {index}: {str(error) or 'no reason given'}; "
                    "correct its __getitem__."
                ) from error

    def whole(self, batch: Any) -> tuple[Nested, Nested]:
        """A batch as it came from a worker, or its failure as an error of this process."""
        if isinstance(batch, _Failure):
            raise UserError(str(batch))
        inputs, targets = batch
        return inputs, targets

    def loader(self, keys: list[list[Key]], workers: int) -> DataLoader[Any]:
        """A loader of the batches of these keys, in their order."""
        # A generator of its own: a loader draws a number from it, and everybody else's are left alone.
        own = torch.Generator()
        return DataLoader(self, batch_size=None, sampler=keys, num_workers=min(workers, len(keys)), generator=own)


def workers_for(reading: Reading, count: int) -> int:
    """As many processes as there are cores where an epoch takes seconds to read, otherwise none."""
    clock = time.monotonic()
    tried = min(TIMED, count)
    for index in range(tried):
        reading.batch([(-1, index)])
    seconds = (time.monotonic() - clock) / tried * count
    return min(os.cpu_count() or 1, MAX_WORKERS) if seconds > SLOW_EPOCH else 0
