"""Batches of any structure: a tensor, or tuples, lists and dicts of such values; every tensor has a row per example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from budgetnet.errors import UserError

Nested = Any
"""A tensor, or tuples, lists and dicts of nested values."""


def mapped(function: Callable[[Any], Any], value: Nested) -> Nested:
    """The same structure with `function` applied to everything that is no container."""
    if isinstance(value, Mapping):
        return {name: mapped(function, part) for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(function, part) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(mapped(function, part) for part in value)
    return function(value)


def leaves(value: Nested) -> Iterator[Any]:
    """Everything in a structure that is no container, in its order."""
    if isinstance(value, Mapping | tuple | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from leaves(part)
    else:
        yield value


def rows(value: Nested) -> int:
    """The number of examples: the length of every tensor of the structure."""
    sizes = {len(leaf) if leaf.dim() else 0 for leaf in leaves(value)}
    if len(sizes) != 1:
        many = " and ".join(map(str, sorted(sizes))) or "no"
        raise UserError(f"the tensors of a batch have {many} rows; give each of them one row per example.")
    return sizes.pop()


def select(value: Nested, chosen: slice | Tensor) -> Nested:
    """These examples of every tensor."""
    return mapped(lambda leaf: leaf[chosen if isinstance(chosen, slice) else chosen.to(leaf.device)], value)


def shapes(value: Nested) -> Nested:
    """The shape of one example, in the structure of the batch."""
    return mapped(lambda leaf: tuple(leaf.shape[1:]), value)


def show(value: Nested) -> str:
    """A structure of shapes (tuples of ints) for people: `3×32×32`, `(12, 12)`, `{ids: 12, mask: 12}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {show(part)}" for name, part in value.items()) + "}"
    if isinstance(value, tuple) and all(isinstance(part, int) for part in value):
        return "×".join(map(str, value)) or "one number"
    return "(" + ", ".join(show(part) for part in value) + ")"


def stacked(examples: Sequence[Nested], numbers: Sequence[int], what: str) -> Nested:
    """Examples of one structure as a batch; `numbers` are theirs in the data, for the sentence of an error."""
    first = examples[0]
    if isinstance(first, Mapping | tuple | list):
        keys = list(first) if isinstance(first, Mapping) else range(len(first))
        columns = {key: _column(examples, numbers, key, what) for key in keys}
        if isinstance(first, Mapping):
            return columns
        return type(first)(*columns.values()) if hasattr(first, "_fields") else type(first)(columns.values())
    for number, example in zip(numbers, examples, strict=True):
        if not isinstance(example, Tensor) or example.shape != first.shape:
            shape = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
            raise UserError(
                f"the {what} of example {number} has shape {shape} but that of example {numbers[0]} has "
                f"{tuple(first.shape)}; bring all of them to one size."
            )
    return torch.stack(list(examples))


def _column(examples: Sequence[Nested], numbers: Sequence[int], key: Any, what: str) -> Nested:
    parts = [_part(example, key, number, what) for number, example in zip(numbers, examples, strict=True)]
    return stacked(parts, numbers, what)


def _part(example: Nested, key: Any, number: int, what: str) -> Nested:
    try:
        return example[key]
    except (KeyError, IndexError, TypeError):
        raise UserError(
            f"the {what} of example {number} has no part {key!r}, which that of the first has; make the examples alike."
        ) from None
