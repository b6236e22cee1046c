"""A segmentation data set in two folders, so simple that a tiny network learns it: bright shapes on a dark ground."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

SPACE = "neural-fabric:width=2,scales=3,filters=4,task=segmentation"


def write_folders(folder: Path, count: int = 48, side: int = 16) -> str:
    """Images and palette label maps with train and test halves; the specification of the data set."""
    random = np.random.default_rng(0)
    for part, number in (("train", count), ("test", count // 4)):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True)
        for i in range(number):
            labels = np.zeros((side, side), np.uint8)
            for label in (1, 2):
                top, left = random.integers(0, side - 7, 2)
                labels[top : top + 7, left : left + 7] = label
            pixels = np.array([[40, 40, 40], [230, 60, 60], [60, 60, 230]])[labels] + random.integers(
                -25, 25, (1, 1, 3)
            )
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / part / f"{i}.png")
            labels[0, :3] = 255
            image = Image.fromarray(labels)
            image.putpalette([0, 0, 0, 255, 0, 0, 0, 0, 255] + [128] * 759)
            image.save(folder / "labels" / part / f"{i}.png")
    return f"segmentation-folder:images={folder / 'images'},labels={folder / 'labels'},validation=8"


def search_options(data: str) -> list[str]:
    """A search of a few seconds."""
    options = ["search", "--space", SPACE, "--data", data, "--budget", "macs<=70%", "--epochs", "6"]
    return [*options, "--batch-size", "8", "--quiet"]
