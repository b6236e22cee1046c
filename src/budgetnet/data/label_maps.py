"""Label maps as palette PNGs: the pixels are class numbers, the colours are for people."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from torch import Tensor

from budgetnet.data.split import IGNORE

Colour = tuple[int, int, int]

_COLOURS: tuple[Colour, ...] = (
    (59, 63, 70),
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
"""Okabe and Ito's colours, which people of every colour vision tell apart, with a dark grey for their black."""
_IGNORED: Colour = (255, 255, 255)


def colour(label: int) -> Colour:
    """The colour of a class; beyond the eighth they repeat, each time lighter."""
    if label == IGNORE:
        return _IGNORED
    rounds, place = divmod(label, len(_COLOURS))
    red, green, blue = (round(255 - (255 - part) * 0.55**rounds) for part in _COLOURS[place])
    return red, green, blue


def label_map_png(labels: Tensor) -> bytes:
    """A label map H×W as a PNG that `read_label_map` reads back."""
    image = Image.fromarray(labels.cpu().numpy().astype(np.uint8))
    image.putpalette([part for label in range(256) for part in colour(label)])
    return _png(image)


def image_png(pixels: Tensor) -> bytes:
    """An image of uint8, 1×H×W or 3×H×W, as a PNG."""
    array = pixels.cpu().numpy()
    return _png(Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0)))


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
