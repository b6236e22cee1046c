"""What a model file says about itself, apart from its numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch

from budgetnet.errors import UserError

SCALED = "pixels in [0, 255] are scaled to [-1, 1] inside"
SCALED_ONE = "inputs in [0, 1] are scaled to [-1, 1] inside"
"""What files of version 0.1.0 say."""
DTYPES = ("float32", "float16", "int64", "int32", "uint8", "bool")
"""Types of inputs that a network may take."""
PLAIN = "none"

MOST_SIDES = 6
LARGEST_INPUT = 2**26
"""Numbers of one input."""
MOST_LABELS = 2**17
MOST_BUDGETS = 100
LONGEST_TEXT = 1000
LONGEST_JSON = 2**24
"""Characters of an architecture."""


@dataclass(frozen=True)
class Description:
    """Where a network comes from, what it takes and gives, and its certificate; kept in the file's metadata."""

    space: str
    architecture: str
    """As `Architecture.to_json` writes it."""
    input_shape: tuple[int, ...]
    labels: tuple[str, ...]
    task: str = "classification"
    scaled: bool = True
    """Whether the file takes pixels from 0 to `white`, and scales them to the [−1, 1] of the training."""
    certificate: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "fp32"
    input_dtype: str = "float32"
    white: float = 255.0

    @staticmethod
    def of_run(space: str, architecture: str, data: Mapping[str, Any], certificate: Mapping[str, Any]) -> Description:
        """The network of a run, whose `data` are what its data.json holds."""
        shape, classes = checked_shape(data["input_shape"], "data.json"), checked_labels(data["classes"], "data.json")
        scaled, dtype = data["scaling"] == "[-1,1]", checked_dtype(data.get("input_dtype", "float32"), "data.json")
        return Description(space, architecture, shape, classes, data["task"], scaled, certificate, input_dtype=dtype)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the inputs that the file takes."""
        return cast(torch.dtype, getattr(torch, self.input_dtype))

    def label(self, number: int) -> str:
        """The name of a class, or its number where it has none."""
        return self.labels[number] if number < len(self.labels) else str(number)

    def to_strings(self) -> dict[str, str]:
        """As a map of texts, which every format can hold."""
        return {
            "space": self.space,
            "architecture": json.dumps(json.loads(self.architecture)),
            "input_shape": json.dumps(self.input_shape),
            "labels": json.dumps(self.labels),
            "task": self.task,
            "input_dtype": self.input_dtype,
            "normalisation": (SCALED if self.white == 255 else SCALED_ONE) if self.scaled else PLAIN,
            "certificate": json.dumps(dict(self.certificate)),
            "precision": self.precision,
        }

    @staticmethod
    def from_strings(texts: Mapping[str, str], path: Path | str) -> Description:
        """What `to_strings` made; `path` is for the message if it is not that."""
        try:
            return Description(
                _text(texts["space"]),
                _text(texts["architecture"], LONGEST_JSON),
                checked_shape(json.loads(texts["input_shape"]), path),
                checked_labels(json.loads(texts["labels"]), path),
                _text(texts["task"]),
                texts["normalisation"] in (SCALED, SCALED_ONE),
                checked_certificate(json.loads(texts["certificate"]), path),
                _text(texts.get("precision", "fp32")),
                checked_dtype(texts.get("input_dtype", "float32"), path),
                1.0 if texts["normalisation"] == SCALED_ONE else 255.0,
            )
        except UserError:
            raise
        except (KeyError, ValueError, TypeError, RecursionError):
            raise UserError(f"{path} does not describe itself as budgetnet's models do; export it again") from None


def checked_shape(value: Any, path: Path | str) -> tuple[int, ...]:
    """The shape of one input, of a size that a network may have."""
    sides = value if isinstance(value, (list, tuple)) else ()
    whole = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides)
    if not 0 < len(sides) <= MOST_SIDES or not whole or math.prod(sides) > LARGEST_INPUT:
        raise UserError(
            f"{path} says that an input is {value!r:.60}; a shape has up to {MOST_SIDES} sides and {LARGEST_INPUT} "
            "numbers: restore the file"
        )
    return tuple(sides)


def checked_dtype(value: Any, path: Path | str) -> str:
    """The type of the inputs."""
    if value not in DTYPES:
        raise UserError(f"{path} says that inputs are {value!r:.60}; they are {', '.join(DTYPES)}: restore the file")
    return str(value)


def checked_labels(value: Any, path: Path | str) -> tuple[str, ...]:
    """The names of classes."""
    names = value if isinstance(value, (list, tuple)) else None
    if names is None or len(names) > MOST_LABELS or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path} says that the classes are {value!r:.60}; they are a list of names: restore the file")
    return tuple(name[:LONGEST_TEXT] for name in names)


def checked_certificate(value: Any, path: Path | str) -> dict[str, Any]:
    """A certificate as far as other parts rely on it: checksums by name, and budgets with a cost and a maximum."""
    if not isinstance(value, dict):
        raise UserError(f"the certificate in {path} is {value!r:.60}; it is a map: restore the file")
    sums, budgets = value.get("checksums", {}), value.get("budgets", [])
    if not isinstance(sums, dict) or not all(isinstance(entry, str) for entry in sums.values()):
        raise UserError(f"the checksums of the certificate in {path} are {sums!r:.60}; restore the file")
    checked_budgets(budgets, f"the certificate in {path}")
    return value


def checked_budgets(value: Any, where: str) -> list[Mapping[str, Any]]:
    """Budgets as a certificate or a summary lists them."""
    entries: list[Mapping[str, Any]] = value if isinstance(value, list) and len(value) <= MOST_BUDGETS else [{}]
    for entry in entries:
        cost, maximum = (entry.get("cost"), entry.get("maximum")) if isinstance(entry, dict) else (None, None)
        number = isinstance(maximum, (int, float)) and not isinstance(maximum, bool)
        if not isinstance(cost, str) or not number:
            raise UserError(f"the budgets of {where} are {value!r:.60}; each has a cost and a maximum: restore it")
    return entries


def _text(value: str, longest: int = LONGEST_TEXT) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError
    return value
