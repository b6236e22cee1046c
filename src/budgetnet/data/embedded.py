"""The data set inside the package: 9,000 images of Fashion-MNIST in one PNG file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from budgetnet.data.arrays import from_arrays
from budgetnet.data.fashion import CLASSES
from budgetnet.data.options import Options
from budgetnet.data.split import DataSet, Split

TRAIN, VALIDATION, TEST = 6000, 1000, 2000
SIDE, COLUMNS = 28, 100


def read_embedded(options: Options, root: Path | None) -> DataSet:
    """A balanced part of Fashion-MNIST that needs no file and no network; `root` is not used."""
    pool = from_mosaic(_mosaic())
    train, test = pool.take(TRAIN + VALIDATION), pool.between(TRAIN + VALIDATION, len(pool))
    return from_arrays("embedded", CLASSES, train, test, options, validation=VALIDATION, crop=(2, SIDE))


def to_mosaic(images: Tensor) -> Tensor:
    """Images N×1×28×28, ordered so that image i is of class i mod 10, as one picture of 100 columns."""
    tiles = images.view(-1, COLUMNS, SIDE, SIDE)
    return tiles.transpose(1, 2).reshape(-1, COLUMNS * SIDE)


def from_mosaic(mosaic: Tensor) -> Split:
    """The examples of such a picture; the labels follow from the order."""
    images = mosaic.view(-1, SIDE, COLUMNS, SIDE).transpose(1, 2).reshape(-1, 1, SIDE, SIDE)
    return Split(images, torch.arange(len(images)) % len(CLASSES))


def _mosaic() -> Tensor:
    with files("budgetnet.data").joinpath("embedded.png").open("rb") as stream, Image.open(stream) as image:
        return torch.from_numpy(np.array(image))
