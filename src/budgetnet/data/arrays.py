"""From the arrays of an official data set to a `DataSet`: sizes, held-out images, augmentation."""

from __future__ import annotations

from budgetnet.data.augment import Augmentation
from budgetnet.data.options import Options, divide, scaled
from budgetnet.data.resize import area
from budgetnet.data.split import DataSet, Split


def from_arrays(
    name: str,
    classes: tuple[str, ...],
    train: Split,
    test: Split,
    options: Options,
    *,
    validation: int,
    crop: tuple[int, int],
) -> DataSet:
    """A classification data set; `crop` is (pixels, side), the padding that suits images of that side."""
    count, held_out = divide(len(train), options.validation or validation, options.limit)
    used, held, test = (
        _resized(part, options.size) for part in (train.take(count), train.between(held_out, len(train)), test)
    )
    pixels = scaled(*crop, used.inputs.shape[-1]) if options.crop is None else options.crop
    return DataSet(name, "classification", classes, used, held, test, Augmentation(pixels, options.flip))


def _resized(split: Split, size: int | None) -> Split:
    return split if size is None else Split(area(split.inputs, size), split.targets)
