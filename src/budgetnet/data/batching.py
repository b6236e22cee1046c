"""Batches whose randomness depends only on (seed, epoch, batch), so that any of them can be made again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from budgetnet.data.augment import Augmentation
from budgetnet.data.split import Split
from budgetnet.errors import UserError


def prepare(inputs: Tensor) -> Tensor:
    """uint8 images as float32 in [−1, 1]; floating-point inputs are returned as they are."""
    if inputs.dtype == torch.uint8:
        return inputs.to(torch.float32).div_(127.5).sub_(1)
    return inputs


def batches(
    split: Split,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    augmentation: Augmentation | None = None,
    shuffle: bool,
    drop_last: bool = False,
    start: int = 0,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[Tensor, Tensor]]:
    """Prepared (inputs, targets) of one epoch from batch number `start` on, as if it had never been interrupted."""
    if batch_size <= 0:
        raise UserError(f"the batch size is {batch_size}; it must be at least 1.")
    order = torch.randperm(len(split), generator=_generator("order", seed, epoch)) if shuffle else None
    last = len(split) - len(split) % batch_size if drop_last else len(split)
    return _batches(split, order, range(0, last, batch_size)[start:], batch_size, (seed, epoch), augmentation, device)


def _batches(
    split: Split,
    order: Tensor | None,
    firsts: range,
    batch_size: int,
    key: tuple[int, int],
    augmentation: Augmentation | None,
    device: torch.device | str,
) -> Iterator[tuple[Tensor, Tensor]]:
    for first in firsts:
        inputs, targets = _select(split, order, first, first + batch_size)
        if augmentation is not None:
            inputs, targets = augmentation(inputs, targets, _generator("augmentation", *key, first // batch_size))
        yield prepare(inputs.to(device)), targets.to(device)


def _select(split: Split, order: Tensor | None, first: int, last: int) -> tuple[Tensor, Tensor]:
    if order is None:
        chosen = split.between(first, last)
        return chosen.inputs, chosen.targets
    rows = order[first:last]
    return split.inputs[rows.to(split.inputs.device)], split.targets[rows.to(split.targets.device)]


def _generator(purpose: str, *key: int) -> torch.Generator:
    """A generator for one purpose: neighbouring keys must not give related streams, hence the hash."""
    digest = hashlib.blake2b(repr((purpose, key)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
