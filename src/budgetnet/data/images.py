"""Image files as tensors, many at once."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from budgetnet.data.resize import area
from budgetnet.errors import UserError

PIXELS = "BUDGETNET_MAX_PIXELS"
"""The environment variable that allows larger images than `MOST_PIXELS`."""
MOST_PIXELS = 2**26
LONGEST_SIDE = 2**16
LARGEST_FILE = 2**30
"""Bytes. Of a file with several frames only the first one is ever decoded."""

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


def image_files(folder: Path) -> list[Path]:
    """The image files directly inside a folder, by name; hidden files and other types are left out."""
    files = (file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES and not file.name.startswith("."))
    return sorted(file for file in files if file.is_file())


def read_image(file: Path, grey: bool = False, size: int | None = None) -> Tensor:
    """One image as uint8 C×H×W, with one channel or three."""
    pixels = torch.from_numpy(_pixels(file, "L" if grey else "RGB"))
    channels = pixels[None] if grey else pixels.permute(2, 0, 1).contiguous()
    return channels if size is None else area(channels, size)


def image_sizes(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Width and height of each image, from the headers of the files."""

    def size(file: Path) -> tuple[int, int]:
        with _opened(file) as image:
            return image.size

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(size, files))


def read_label_map(file: Path) -> Tensor:
    """One label map as uint8 H×W: the grey values or palette indices of the file are the class numbers."""
    labels = torch.from_numpy(_pixels(file, None))
    if labels.dim() != 2:
        raise UserError(f"label map {file} is a colour image; store one class number per pixel, in grey or a palette.")
    return labels


def stack(files: Sequence[Path], read: Callable[[Path], Tensor]) -> Tensor:
    """All files as one tensor, read by as many threads as there are cores."""
    first = read(files[0])
    stacked = torch.empty((len(files), *first.shape), dtype=first.dtype)

    def fill(index: int) -> None:
        image = read(files[index])
        if image.shape != first.shape:
            raise UserError(
                f"{files[index]} is {_side(image)} but {files[0]} is {_side(first)}; "
                "bring all images to one size, or add size=… to the data set."
            )
        stacked[index] = image

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # list() re-raises the first error in the order of the files, whatever the order of the threads.
        list(pool.map(fill, range(len(files)), chunksize=1))
    return stacked


def _pixels(file: Path, mode: str | None) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with _opened(file) as image:
        pixels = np.array(image if mode is None or image.mode.startswith(("I", "F")) else image.convert(mode))
    if pixels.dtype != np.uint8:
        raise UserError(f"image {file} holds {pixels.dtype} values; convert it to 8 bits per channel.")
    return pixels


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Image.Image]:
    """An image file; whatever cannot be read of it is the user's to repair."""
    try:
        with _regular(file) as content, Image.open(content) as image:
            _check_size(file, *image.size)
            yield image
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"image {file} is missing; put it back or remove it from the list.") from None
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise UserError(f"image {file} cannot be read ({_reason(error)}); repair it or remove it.") from None


def _regular(file: Path) -> BinaryIO:
    """A regular file, opened for reading; a pipe or a device is not waited for."""
    handle = os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    status = os.fstat(handle.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
        handle.close()
        raise UserError(f"image {file} is not a regular file of at most {LARGEST_FILE // 2**20} MB; remove it.")
    return handle


def _check_size(file: Path, width: int, height: int) -> None:
    """Refuses an image by its header, before memory is taken for its pixels."""
    try:
        most = int(os.environ.get(PIXELS, MOST_PIXELS))
    except ValueError:
        raise UserError(f"{PIXELS} is {os.environ[PIXELS]!r:.40}; it must be a whole number of pixels") from None
    if width * height > most or max(width, height) > max(LONGEST_SIDE, most // LONGEST_SIDE):
        raise UserError(
            f"image {file} has {width}×{height} pixels, more than {most} or than {LONGEST_SIDE} on a side; "
            f"make it smaller, or set {PIXELS}"
        )


def _reason(error: Exception) -> str:
    return "not an image" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__


def _side(image: Tensor) -> str:
    return f"{image.shape[-1]}×{image.shape[-2]}"
