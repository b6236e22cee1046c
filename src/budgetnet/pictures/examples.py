"""A few validation images of a segmentation with their true and predicted label maps, as files of a run folder."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from budgetnet.data.feeds import Feed
from budgetnet.data.label_maps import image_png, label_map_png
from budgetnet.naming.files import write_file

EXAMPLES = 6
"""The first of the validation data, always the same, so that runs can be compared by eye."""
KINDS = ("image", "truth", "prediction")


def picture_file(number: int, kind: str) -> str:
    """Where a picture is inside the run folder; examples count from 1."""
    return f"pictures/{number}-{kind}.png"


def write_pictures(folder: Path, model: nn.Module, validation: Feed) -> None:
    """Writes the pictures; inputs with neither one channel nor three are not images and give none."""
    inputs, targets = (part[:EXAMPLES] for part in next(validation.evaluation(EXAMPLES)))
    if inputs.shape[1] not in (1, 3):
        return
    with torch.no_grad():
        predictions = model.eval()(inputs).argmax(1)
    for number, (image, truth, prediction) in enumerate(zip(inputs, targets, predictions, strict=True), 1):
        pictures = (image_png(_pixels(image)), label_map_png(truth), label_map_png(prediction))
        for kind, picture in zip(KINDS, pictures, strict=True):
            write_file(folder / picture_file(number, kind), picture)


def _pixels(image: Tensor) -> Tensor:
    """The inverse of `data.prepare`."""
    return ((image + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
