"""CIFAR-10 and CIFAR-100 from their official Python files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from budgetnet.data.arrays import from_arrays
from budgetnet.data.options import Options
from budgetnet.data.places import locate
from budgetnet.data.split import DataSet, Split, as_labels
from budgetnet.data.unpickle import read_pickle
from budgetnet.errors import UserError

_CIFAR10_FILES = ("batches.meta", *(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
_CIFAR100_FILES = ("meta", "train", "test")


def read_cifar10(options: Options, root: Path | None) -> DataSet:
    """CIFAR-10: 50,000 training and 10,000 test images of 10 classes."""
    folder = locate("cifar10", root, ("cifar-10-batches-py",), _CIFAR10_FILES, options.download)
    classes = _classes(folder / "batches.meta", b"label_names")
    parts = [_examples(folder / f"data_batch_{k}", b"labels", len(classes)) for k in range(1, 6)]
    train = Split(torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts]))
    test = _examples(folder / "test_batch", b"labels", len(classes))
    return from_arrays("cifar10", classes, train, test, options, validation=5000, crop=(4, 32))


def read_cifar100(options: Options, root: Path | None) -> DataSet:
    """CIFAR-100: 50,000 training and 10,000 test images of 100 (fine) classes."""
    folder = locate("cifar100", root, ("cifar-100-python",), _CIFAR100_FILES, options.download)
    classes = _classes(folder / "meta", b"fine_label_names")
    train = _examples(folder / "train", b"fine_labels", len(classes))
    test = _examples(folder / "test", b"fine_labels", len(classes))
    return from_arrays("cifar100", classes, train, test, options, validation=5000, crop=(4, 32))


def _classes(file: Path, key: bytes) -> tuple[str, ...]:
    names = _entry(read_pickle(file), key, file)
    if not (isinstance(names, list) and names and all(isinstance(name, bytes) for name in names)):
        raise _damaged(file, "its class names are not a list of names")
    return tuple(name.decode("utf-8", "replace") for name in names)


def _examples(file: Path, key: bytes, classes: int) -> Split:
    content = read_pickle(file)
    data, labels = _entry(content, b"data", file), _entry(content, key, file)
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != 3072:
        raise _damaged(file, "its data is not an array of 3072 bytes an image")
    if not isinstance(labels, list) or len(labels) != len(data) or not all(type(label) is int for label in labels):
        raise _damaged(file, f"it does not hold one label for each of its {len(data)} images")
    images = torch.from_numpy(data.reshape(-1, 3, 32, 32).copy())
    return Split(images, as_labels(labels, classes, str(file)))


def _entry(content: dict[bytes, Any], key: bytes, file: Path) -> Any:
    if key not in content:
        raise _damaged(file, f"it has no entry {key.decode()!r}")
    return content[key]


def _damaged(file: Path, reason: str) -> UserError:
    return UserError(f"{file} is not an official CIFAR file ({reason}); download it again.")
