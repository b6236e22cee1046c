"""Batches whose randomness depends only on (seed, epoch, batch), so that any of them can be made again."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from budgetnet.data.augment import Augmentation
from budgetnet.data.nested import Nested, leaves, mapped
from budgetnet.data.seeds import generator_of
from budgetnet.data.split import Split
from budgetnet.errors import UserError


def prepare(inputs: Nested) -> Nested:
    """Inputs as networks take them.

    Args:
        inputs: A batch.

    Returns:
        uint8 images N×C×H×W as float32 in [−1, 1]; other inputs, and structures of several, as they are.
    """
    return _scaled(inputs) if is_image(inputs) else inputs


def is_image(values: Nested) -> bool:
    """Whether inputs are images of bytes, which are scaled to [−1, 1]."""
    return isinstance(values, Tensor) and values.dtype == torch.uint8 and values.dim() == 4


def _scaled(images: Tensor) -> Tensor:
    return images.to(torch.float32).div_(127.5).sub_(1)


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
) -> Iterator[tuple[Nested, Nested]]:
    """The batches of one epoch, the same for the same seed and epoch wherever they start.

    Args:
        split: Examples in memory.
        batch_size: Examples in a batch.
        seed: Of the order and the augmentation.
        epoch: The number of the epoch.
        augmentation: What is done to inputs and targets, if anything.
        shuffle: Whether the order is random.
        drop_last: Whether a last batch with fewer examples is left out.
        start: The number of the first batch, to go on as if the epoch had never been interrupted.
        device: Where batches go.

    Returns:
        Prepared (inputs, targets), one batch after the other.
    """
    if batch_size <= 0:
        raise UserError(f"the batch size is {batch_size}; it must be at least 1.")
    order = torch.randperm(len(split), generator=generator_of("order", seed, epoch)) if shuffle else None
    if order is not None:
        order = order.to(next(leaves(split.inputs)).device)  # once an epoch, where the examples live
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
) -> Iterator[tuple[Nested, Nested]]:
    for first in firsts:
        chosen = (
            split.between(first, first + batch_size)
            if order is None
            else split.chosen(order[first : first + batch_size])
        )
        inputs, targets = moved(chosen.inputs, device), moved(chosen.targets, device)
        if augmentation is not None:
            inputs, targets = augmentation(inputs, targets, generator_of("augmentation", *key, first // batch_size))
        yield prepare(inputs), targets


def moved(values: Nested, device: torch.device | str) -> Nested:
    """The same values on a device; the copy to a CUDA device starts from pinned memory, so that nobody waits for it."""
    if torch.device(device).type != "cuda":
        return mapped(lambda leaf: leaf.to(device), values)
    return mapped(lambda leaf: leaf if leaf.is_cuda else leaf.pin_memory().to(device, non_blocking=True), values)
