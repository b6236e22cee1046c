"""Examples in memory, and a data set made of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from budgetnet.data.augment import Augmentation
from budgetnet.data.nested import Nested, mapped, rows, select
from budgetnet.errors import UserError

IGNORE = 255
"""The label of a pixel that counts neither in the loss nor in a score."""


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs and targets: tensors with a row per example, or tuples and dicts of them.

    uint8 inputs N×C×H×W are images; targets of classes are int64, N of them, or N×H×W for segmentation.
    """

    inputs: Nested
    targets: Nested

    def __len__(self) -> int:
        return rows(self.inputs)

    def take(self, n: int) -> Split:
        """The first n examples."""
        return self.between(0, n)

    def between(self, first: int, last: int) -> Split:
        """The examples first, …, last − 1, as a view."""
        return Split(select(self.inputs, slice(first, last)), select(self.targets, slice(first, last)))

    def to(self, device: str) -> Split:
        """The same examples on a device."""
        return Split(*(mapped(lambda leaf: leaf.to(device), part) for part in (self.inputs, self.targets)))

    def chosen(self, rows: Tensor) -> Split:
        """The examples of these numbers, copied."""
        return Split(select(self.inputs, rows), select(self.targets, rows))


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training, validation and test examples of one task, with the augmentation that training uses."""

    name: str
    task: str
    classes: tuple[str, ...]
    train: Split
    validation: Split
    test: Split | None
    augmentation: Augmentation
    notes: tuple[str, ...] = ()
    """What a user should know of how the data were read, as sentences."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input: (C, H, W) for images."""
        return tuple(self.train.inputs.shape[1:])


def check_labels(targets: Tensor, classes: int, where: str) -> None:
    """Refuses labels that are no class; a label map may also hold 255 for pixels to ignore.

    Args:
        targets: Labels, or label maps.
        classes: The number of classes: labels are 0 to classes − 1.
        where: The data set or file that they are from, for the message.
    """
    is_map = targets.dim() > 1
    allowed = ((targets >= 0) & (targets < classes)) | ((targets == IGNORE) & is_map)
    if not bool(allowed.all()):
        wrong = int(targets[~allowed][0])
        ignored = f" (or {IGNORE} for a pixel to ignore)" if is_map else ""
        raise UserError(
            f"{where}: label {wrong} is outside the range of {classes} classes; "
            f"labels must be between 0 and {classes - 1}{ignored}."
        )


def as_labels(values: list[int] | Tensor, classes: int, where: str) -> Tensor:
    """Labels as checked int64."""
    labels = torch.as_tensor(values, dtype=torch.int64)
    check_labels(labels, classes, where)
    return labels
