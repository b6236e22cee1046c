"""A user's own arrays, examples and batches as tensors of inputs and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

from budgetnet.data.nested import Nested, leaves, mapped, rows, stacked
from budgetnet.data.split import Split, check_labels
from budgetnet.errors import UserError

TARGET_KEYS = ("labels", "label", "targets", "target", "y")
"""Where the targets are in a batch or an example that is a dict."""


def parted(value: Any, who: str) -> tuple[Nested, Nested]:
    """Inputs and targets of a batch, an example or columns.

    The last part of a tuple is the targets; of a dict, the first of `TARGET_KEYS` that it has. What remains is the
    inputs: the only part itself, or a tuple or dict of several.
    """
    if isinstance(value, Mapping):
        key = next((key for key in TARGET_KEYS if key in value), None)
        inputs = {name: part for name, part in value.items() if name != key}
        if key is None or not inputs:
            raise UserError(
                f"{who} is a dict of {', '.join(map(repr, value)) or 'nothing'}; "
                f"put the targets under one of {', '.join(TARGET_KEYS)}, beside the inputs."
            )
        return (inputs if len(inputs) > 1 else next(iter(inputs.values()))), value[key]
    if not isinstance(value, tuple | list) or len(value) < 2:
        raise UserError(
            f"{who} is {_kind(value)}; it must be a pair (inputs, targets), or a dict with inputs and labels."
        )
    return (value[0] if len(value) == 2 else tuple(value[:-1])), value[-1]


def as_tensor(value: Any) -> Tensor:
    """A tensor of anything that holds numbers; images of Pillow come out as C×H×W."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Image.Image):
        pixels = np.array(value)
        return torch.from_numpy(pixels.transpose(2, 0, 1).copy() if pixels.ndim == 3 else pixels[None])
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        return torch.from_numpy(np.array(value))  # a copy: the array may be read-only
    except (TypeError, ValueError):
        raise UserError(
            f"{type(value).__name__} cannot become a tensor of numbers; convert the examples to tensors or arrays."
        ) from None


def as_target(value: Any) -> Tensor:
    """A target as a tensor; an image of Pillow is a label map, whose pixels are class numbers."""
    return as_tensor(np.array(value) if isinstance(value, Image.Image) else value)


def as_example(value: Any, index: int) -> tuple[Nested, Nested]:
    """An example of a data set as tensors; lists of numbers are values, not structures."""
    inputs, targets = parted(value, f"example {index}")
    return mapped(as_tensor, _without_lists(inputs)), mapped(as_target, _without_lists(targets))


def as_split(source: object, limit: int | None = None) -> Split:
    """Examples in memory, checked.

    Args:
        source: Arrays or tensors (inputs, targets), a `Split`, or a map-style `Dataset`.
        limit: The first so many; all if None.

    Returns:
        The examples.
    """
    if limit is not None and limit <= 0:
        raise UserError(f"limit is {limit}; it must be at least 1, or absent to use every example.")
    columns = as_columns(source)
    inputs, targets = _stack(source, limit) if columns is None else columns
    count = _check_rows(inputs, targets)
    checked = Split(mapped(check_input, inputs), mapped(check_target, targets))
    return checked.take(min(limit or count, count))


def as_columns(source: object) -> tuple[Nested, Nested] | None:
    """Inputs and targets of a source that is in memory already; None for data sets of examples."""
    if isinstance(source, Split):
        return source.inputs, source.targets
    if type(source) is TensorDataset:
        source = source.tensors
    whole = isinstance(source, tuple | Mapping) or (isinstance(source, list) and all(map(_is_array, source)))
    if not whole or not all(map(_is_array, leaves(source))):
        return None
    inputs, targets = parted(source, "the data")
    return mapped(as_tensor, inputs), mapped(as_tensor, targets)


def check_class_targets(split: Split, classes: int, where: str = "the data") -> None:
    """Refuses targets that cross entropy cannot take: class numbers N, or maps N×H×W of the images' size."""
    inputs, targets = split.inputs, split.targets
    if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dtype == torch.bool:
        kind = targets.dtype if isinstance(targets, Tensor) else type(targets).__name__
        raise UserError(
            f"the targets are {kind}; give class numbers as integers, or say what to minimise, such as loss='mse'."
        )
    images = isinstance(inputs, Tensor) and inputs.dim() == 4
    if targets.dim() not in (1, 3) or (targets.dim() == 3 and images and targets.shape[1:] != inputs.shape[-2:]):
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else "several parts"
        raise UserError(
            f"the targets have shape {tuple(targets.shape)} for inputs of shape {shape}; "
            "give N class numbers, or N×H×W label maps of the images' size."
        )
    check_labels(targets, classes, where)


def check_dense(values: Tensor, what: str) -> None:
    """Refuses tensors that have no values, or not one for each place."""
    if values.is_meta:
        raise UserError(f"the {what} are on the meta device, without values; give tensors with values.")
    if values.layout != torch.strided:
        raise UserError(f"the {what} are {values.layout}; make them dense with to_dense().")


def check_input(values: Tensor) -> Tensor:
    """Inputs that a network can take; doubles become floats."""
    check_dense(values, "inputs")
    if values.dtype == torch.uint8:
        return _check_images(values)
    if values.is_complex():
        raise UserError(f"the inputs are {values.dtype}; give their real and imaginary parts as two channels.")
    return _check_finite(values, "inputs")


def check_target(values: Tensor) -> Tensor:
    """Targets of any kind: whole numbers as int64, doubles as floats."""
    check_dense(values, "targets")
    if values.is_complex():
        raise UserError(f"the targets are {values.dtype}; give real numbers.")
    if not values.is_floating_point():
        return values if values.dtype == torch.bool else values.to(torch.int64)
    return _check_finite(values, "targets")


def _check_finite(values: Tensor, what: str) -> Tensor:
    if not values.is_floating_point():
        return values
    if not bool(values.isfinite().all()):
        raise UserError(f"the {what} hold NaN or infinite values; clean them first.")
    return values.to(torch.float32) if values.dtype == torch.float64 else values


def _check_images(images: Tensor) -> Tensor:
    """uint8 N×C×H×W are images; other bytes are whole numbers like any other, if they cannot be meant as images."""
    shape = tuple(images.shape)
    if images.dim() == 3:
        raise UserError(
            f"uint8 inputs are images N×C×H×W but the shape is {shape}; add the missing dimension, "
            "or convert them to int64 if they are no images."
        )
    if images.dim() == 4 and shape[3] <= 4 < shape[1]:
        raise UserError(f"the images seem to be N×H×W×C, with shape {shape}; transpose them to N×C×H×W.")
    return images


def _check_rows(inputs: Nested, targets: Nested) -> int:
    first = next(leaves(inputs))
    if first.dim() == 0 or len(first) == 0:
        raise UserError(f"the inputs have shape {tuple(first.shape)}; give at least one example.")
    count = rows(inputs)
    for target in leaves(targets):
        if target.dim() == 0 or len(target) != count:
            raise UserError(f"{count} inputs have targets of shape {tuple(target.shape)}; give one for each input.")
    return count


def _stack(source: object, limit: int | None) -> tuple[Nested, Nested]:
    count = min(check_map_style(source), limit or 2**62)
    items: Any = source
    pairs = [as_example(items[i], i) for i in range(count)]
    return stacked([pair[0] for pair in pairs], range(count), "input"), stacked(
        [pair[1] for pair in pairs], range(count), "target"
    )


def check_map_style(source: object) -> int:
    """The length of a data set that can be indexed."""
    if isinstance(source, IterableDataset | str) or not isinstance(source, Sized) or not hasattr(source, "__getitem__"):
        raise UserError(
            f"cannot read examples from {_kind(source)}; "
            "give a pair (inputs, targets) of tensors or arrays, a torch Dataset with len(), or a DataLoader."
        )
    if len(source) == 0:
        raise UserError(f"{type(source).__name__} holds no example; give at least one.")
    return len(source)


def _is_array(value: object) -> bool:
    return isinstance(value, Tensor | np.ndarray) or (hasattr(value, "to_numpy") and hasattr(value, "shape"))


def _without_lists(value: Any) -> Any:
    """Lists of numbers as arrays, at any depth; tuples and dicts stay what they are."""
    if isinstance(value, Mapping):
        return {name: _without_lists(part) for name, part in value.items()}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_without_lists(part) for part in value)
    return as_tensor(value) if isinstance(value, list) else value


def _kind(value: object) -> str:
    return f"a text, {value!r:.40}" if isinstance(value, str) else type(value).__name__
