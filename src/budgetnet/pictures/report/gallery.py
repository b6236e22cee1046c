"""The pictures of a segmentation on the page: image, truth and prediction of a few examples, and what colours mean."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from PIL import Image

from budgetnet.data import IGNORE
from budgetnet.data.label_maps import colour
from budgetnet.errors import UserError
from budgetnet.naming.files import LARGEST
from budgetnet.pictures.examples import EXAMPLES, KINDS, picture_file
from budgetnet.pictures.report.numbers import percent
from budgetnet.records.folder import RunFiles, RunFolder

MOST_PIXELS = 2**22
"""A picture with more is not shown: a few of them would be a page too heavy to open."""

Labels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True)
class Shown:
    """A picture as text for an `img` element."""

    kind: str
    source: str
    alt: str


@dataclass(frozen=True)
class Example:
    """An image with its two label maps."""

    pictures: list[Shown]
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Examples, and the name and colour of every class that occurs in them."""

    examples: list[Example]
    legend: list[tuple[str, str]]


def gallery(run: RunFiles) -> Gallery | None:
    """The pictures in a run folder; None if it has none that are whole."""
    names = {**dict(enumerate(run.data.classes if run.data else ())), IGNORE: "ignored"}
    examples: list[Example] = []
    seen: set[int] = set()
    for number, files in enumerate(_pictures(RunFolder(run.path)), 1):
        maps = [labels for kind in ("truth", "prediction") if (labels := _labels(files[kind])) is not None]
        if _size(files["image"]) is None or len(maps) < 2 or maps[0].shape != maps[1].shape:
            continue
        seen.update(int(label) for labels in maps for label in np.unique(labels))
        examples.append(_example(number, files, maps, names))
    legend = [(names.get(label, str(label)), "#{:02x}{:02x}{:02x}".format(*colour(label))) for label in sorted(seen)]
    return Gallery(examples, legend) if examples else None


def _example(number: int, files: Mapping[str, bytes], maps: list[Labels], names: Mapping[int, str]) -> Example:
    truth, prediction = maps
    labelled = truth != IGNORE
    right = percent(float((truth == prediction)[labelled].mean())) if labelled.any() else "none"
    pictures = [
        Shown("image", _data(files["image"]), f"Image {number}"),
        Shown("truth", _data(files["truth"]), f"True label map of image {number}: {_shares(truth, names)}"),
        Shown(
            "prediction",
            _data(files["prediction"]),
            f"Predicted label map of image {number}: {_shares(prediction, names)}",
        ),
    ]
    return Example(pictures, f"Example {number}: {right} of the labelled pixels are right")


def _shares(labels: Labels, names: Mapping[int, str]) -> str:
    found, counts = np.unique(labels, return_counts=True)
    shares = sorted(zip(counts / labels.size, found, strict=True), reverse=True)
    return ", ".join(f"{names.get(int(label), str(label))} {percent(float(share))}" for share, label in shares)


def _pictures(folder: RunFolder) -> Iterator[Mapping[str, bytes]]:
    """Of each example the PNG files by what they show, if all of them are there."""
    for number in range(1, EXAMPLES + 1):
        with suppress(UserError):
            yield {kind: folder.read_bytes(picture_file(number, kind), LARGEST) for kind in KINDS}


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _size(png: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG that can be shown."""
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            return image.size if image.width * image.height <= MOST_PIXELS else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None


def _labels(png: bytes) -> Labels | None:
    """The class numbers of a palette PNG."""
    if _size(png) is None:
        return None
    try:
        with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            return np.array(image) if image.mode == "P" else None
    except (OSError, SyntaxError, ValueError):
        return None
