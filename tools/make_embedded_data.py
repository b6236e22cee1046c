"""Make the embedded data set: `python tools/make_embedded_data.py FOLDER` with the official idx files in FOLDER.

The first images of each class, in the order of the files, interleaved so that image i is of class i mod 10.
"""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from budgetnet.data import Split, embedded
from budgetnet.data.fashion import CLASSES, read_examples

TARGET = Path(embedded.__file__).with_name("embedded.png")


def balanced(split: Split, count: int) -> Tensor:
    """The first count / 10 images of each class, the classes in turn."""
    each = [split.inputs[split.targets == label][: count // len(CLASSES)] for label in range(len(CLASSES))]
    return torch.stack(each, dim=1).flatten(0, 1)


def main(folder: Path) -> None:
    train = balanced(read_examples(folder, "train"), embedded.TRAIN + embedded.VALIDATION)
    test = balanced(read_examples(folder, "t10k"), embedded.TEST)
    mosaic = embedded.to_mosaic(torch.cat([train, test]))
    Image.fromarray(mosaic.numpy()).save(TARGET, optimize=True)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
