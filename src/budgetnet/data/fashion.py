"""Fashion-MNIST from its official idx files, packed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from budgetnet.data.arrays import from_arrays
from budgetnet.data.options import Options
from budgetnet.data.places import locate
from budgetnet.data.split import DataSet, Split, as_labels
from budgetnet.errors import UserError

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def read_fashion_mnist(options: Options, root: Path | None) -> DataSet:
    """Fashion-MNIST: 60,000 training and 10,000 test images, grey, 28×28."""
    folder = locate("fashion-mnist", root, ("fashion-mnist", "FashionMNIST/raw"), _FILES, options.download)
    train, test = (read_examples(folder, part) for part in ("train", "t10k"))
    return from_arrays("fashion-mnist", CLASSES, train, test, options, validation=5000, crop=(2, 28))


def read_examples(folder: Path, part: str) -> Split:
    """The images and labels of "train" or "t10k"."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte", 3)
    file = folder / f"{part}-labels-idx1-ubyte"
    labels = as_labels(read_idx(file, 1), len(CLASSES), str(file))
    if len(images) != len(labels):
        raise UserError(f"{folder} has {len(images)} images but {len(labels)} labels of {part}; download them again.")
    return Split(images[:, None], labels)


def read_idx(file: Path, dimensions: int) -> Tensor:
    """The bytes of an idx file (`file`, or `file`.gz) as a tensor of so many dimensions."""
    packed = file.with_name(file.name + ".gz")
    try:
        content = file.read_bytes() if file.exists() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{packed} cannot be read ({error}); download it again.") from None
    header = 4 + 4 * dimensions
    # Two zero bytes, 8 for unsigned bytes, the number of dimensions; then each of them, big-endian.
    if content[:4] != bytes([0, 0, 8, dimensions]) or len(content) < header:
        raise UserError(f"{file} is not an idx file of bytes with {dimensions} dimensions; download it again.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise UserError(f"{file} should hold {math.prod(shape)} bytes but has {len(content) - header}; get it again.")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=header).reshape(shape).copy())
