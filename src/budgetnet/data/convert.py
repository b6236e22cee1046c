"""A user's own arrays or torch `Dataset` as a `Split`."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from budgetnet.data.split import Split
from budgetnet.errors import UserError


def as_split(source: object, limit: int | None = None) -> Split:
    """The first `limit` examples of a (inputs, targets) pair, a `Split` or a map-style `Dataset`, checked."""
    if limit is not None and limit <= 0:
        raise UserError(f"limit is {limit}; it must be at least 1, or absent to use every example.")
    if isinstance(source, Split):
        inputs, targets = source.inputs, source.targets
    elif isinstance(source, tuple | list) and len(source) == 2 and all(_is_array(part) for part in source):
        inputs, targets = _tensor(source[0]), _tensor(source[1])
    else:
        inputs, targets = _stack(source, limit)
    return Split(_check_inputs(inputs), _check_targets(inputs, targets)).take(limit or len(inputs))


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _tensor(value: Any) -> Tensor:
    """A tensor of anything that holds numbers; images of Pillow come out as C×H×W."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Image.Image):
        pixels = np.array(value)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy() if pixels.ndim == 3 else pixels[None])
    try:
        return torch.from_numpy(np.array(value))  # a copy: the array may be read-only
    except (TypeError, ValueError):
        raise UserError(
            f"{type(value).__name__} cannot become a tensor of numbers; convert the examples to tensors or arrays."
        ) from None


def _stack(source: object, limit: int | None) -> tuple[Tensor, Tensor]:
    items: Any = source
    if isinstance(source, IterableDataset) or not isinstance(source, Sized) or not hasattr(source, "__getitem__"):
        raise UserError(
            f"cannot read examples from {type(source).__name__}; "
            "give a pair (inputs, targets) of tensors or arrays, or a torch Dataset with len() and indexing."
        )
    count = min(len(source), limit or len(source))
    if count == 0:
        raise UserError(f"{type(source).__name__} holds no example; give at least one.")
    pairs = [_pair(items[i], i) for i in range(count)]
    return _stack_column(pairs, 0, "input"), _stack_column(pairs, 1, "target")


def _pair(item: object, index: int) -> tuple[Tensor, Tensor]:
    if not (isinstance(item, tuple | list) and len(item) == 2):
        raise UserError(f"example {index} is {type(item).__name__}; each example must be a pair (input, target).")
    target = item[1]
    if isinstance(target, Image.Image):
        target = np.array(target)
    return _tensor(item[0]), _tensor(target)


def _stack_column(pairs: list[tuple[Tensor, Tensor]], column: int, what: str) -> Tensor:
    first = pairs[0][column]
    for index, pair in enumerate(pairs):
        if pair[column].shape != first.shape:
            raise UserError(
                f"the {what} of example {index} has shape {tuple(pair[column].shape)} but that of example 0 has "
                f"{tuple(first.shape)}; bring all of them to one size."
            )
    return torch.stack([pair[column] for pair in pairs])


def _check_inputs(inputs: Tensor) -> Tensor:
    if inputs.dim() == 0 or len(inputs) == 0:
        raise UserError(f"the inputs have shape {tuple(inputs.shape)}; give at least one example.")
    if inputs.dtype == torch.uint8:
        return _check_images(inputs)
    if not inputs.is_floating_point():
        raise UserError(f"the inputs are {inputs.dtype}; use uint8 for images or a floating-point type.")
    if not bool(inputs.isfinite().all()):
        raise UserError("the inputs hold NaN or infinite values; clean them first.")
    return inputs.to(torch.float32) if inputs.dtype == torch.float64 else inputs


def _check_images(images: Tensor) -> Tensor:
    shape = tuple(images.shape)
    if images.dim() != 4:
        raise UserError(f"uint8 inputs are images N×C×H×W but the shape is {shape}; add the missing dimension.")
    if shape[3] <= 4 < shape[1]:
        raise UserError(f"the images seem to be N×H×W×C, with shape {shape}; transpose them to N×C×H×W.")
    return images


def _check_targets(inputs: Tensor, targets: Tensor) -> Tensor:
    if targets.dim() == 0 or len(targets) != len(inputs):
        raise UserError(f"{len(inputs)} inputs have targets of shape {tuple(targets.shape)}; give one for each input.")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise UserError(f"the targets are {targets.dtype}; give class numbers as integers.")
    if targets.dim() not in (1, 3) or (targets.dim() == 3 and targets.shape[1:] != inputs.shape[-2:]):
        raise UserError(
            f"the targets have shape {tuple(targets.shape)} for inputs of shape {tuple(inputs.shape)}; "
            "give N class numbers, or N×H×W label maps of the images' size."
        )
    labels = targets.to(torch.int64)
    if int(labels.min()) < 0:
        raise UserError(f"label {int(labels.min())} is outside the range; class numbers start at 0.")
    return labels
