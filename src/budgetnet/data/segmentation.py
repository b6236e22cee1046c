"""Segmentation data: Part Labels in its official layout, and a user's two folders of images and label maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from budgetnet.data.augment import Augmentation
from budgetnet.data.folder import held_out, mixed, parts, require, with_one_size
from budgetnet.data.images import image_files, read_image, read_label_map, stack
from budgetnet.data.options import Options, divide
from budgetnet.data.places import locate
from budgetnet.data.resize import area, nearest
from budgetnet.data.split import IGNORE, DataSet, Split, check_labels
from budgetnet.errors import UserError

_PARTS = {"background": (0, 0, 255), "skin": (0, 255, 0), "hair": (255, 0, 0)}
_PARTS_FILES = (
    "lfw_funneled",
    "parts_lfw_funneled_gt_images",
    "parts_train.txt",
    "parts_validation.txt",
    "parts_test.txt",
)
_PARTS_VALIDATION = 500

Pair = tuple[Path, Path]
"""The files of an image and of its label map."""


def read_parts(options: Options, root: Path | None) -> DataSet:
    """Part Labels of LFW: 1500, 500 and 927 faces of 250×250, zero-padded to 256×256 as in the paper."""
    folder = locate("lfw-parts", root, ("lfw-parts", "lfw"), _PARTS_FILES)
    pool = _listed(folder, "train") + _listed(folder, "validation")
    count, held_out = divide(len(pool), options.validation or _PARTS_VALIDATION, options.limit)
    image = partial(_padded_face, size=options.size)
    labels = partial(_padded_parts, size=options.size)
    used, held, test = (
        _read(pairs, image, labels) for pairs in (pool[:count], pool[held_out:], _listed(folder, "test"))
    )
    augmentation = Augmentation(options.crop or 0, options.flip)
    return DataSet("lfw-parts", "segmentation", tuple(_PARTS), used, held, test, augmentation)


def read_segmentation_folder(options: Options, root: Path | None) -> DataSet:
    """Images and label maps of the same names in two folders; train, validation and test in both are used."""
    images = parts(require(options.images, "segmentation-folder", "images"))
    labels = parts(require(options.labels, "segmentation-folder", "labels"))
    pool, held, tested = (
        _matched(image, label) if image and label else [] for image, label in zip(images, labels, strict=True)
    )
    pool, held = held_out(pool, held, options)
    options, notes = with_one_size(options, [image for image, _ in (*pool, *held, *tested)])
    read = partial(read_image, grey=options.grey, size=options.size)
    checked = partial(_checked_map, classes=options.classes, size=options.size)
    used, kept = (_read(pairs, read, checked) for pairs in (pool, held))
    test = _read(tested, read, checked) if tested else None
    classes = options.classes or _count_classes([split for split in (used, kept, test) if split])
    names = tuple(str(index) for index in range(classes))
    augmentation = Augmentation(options.crop or 0, options.flip)
    return DataSet("segmentation-folder", "segmentation", names, used, kept, test, augmentation, notes)


def _read(pairs: Sequence[Pair], image: Callable[[Path], Tensor], labels: Callable[[Path], Tensor]) -> Split:
    inputs = stack([pair[0] for pair in pairs], image)
    targets = stack([pair[1] for pair in pairs], labels)
    if inputs.shape[-2:] != targets.shape[-2:]:
        raise UserError(
            f"label map {pairs[0][1]} is {targets.shape[-1]}×{targets.shape[-2]} but image {pairs[0][0]} is "
            f"{inputs.shape[-1]}×{inputs.shape[-2]}; make them equal, or add size=… to the data set."
        )
    return Split(inputs, targets.to(torch.int64))


def _listed(folder: Path, part: str) -> list[Pair]:
    """The files named in parts_{part}.txt: lines "NAME number", the number with leading zeros or without."""
    file = folder / f"parts_{part}.txt"
    pairs = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) != 2 or not words[1].isdecimal():
            raise UserError(f"{file}: line {line!r} is not a name and a number; download the file again.")
        face = f"{words[0]}_{int(words[1]):04d}"
        pairs.append(
            (folder / "lfw_funneled" / words[0] / f"{face}.jpg", folder / _PARTS_FILES[1] / f"{face}.ppm"),
        )
    if not pairs:
        raise UserError(f"{file} lists no image; download the file again.")
    return pairs


def _padded_face(file: Path, size: int | None) -> Tensor:
    padded = _pad(read_image(file))
    return padded if size is None else area(padded, size)


def _padded_parts(file: Path, size: int | None) -> Tensor:
    """Class numbers from colours; the padding is background, which is what it looks like."""
    colours = read_image(file)
    labels = torch.full(colours.shape[1:], IGNORE, dtype=torch.uint8)
    for index, (red, green, blue) in enumerate(_PARTS.values()):
        labels.masked_fill_((colours[0] == red) & (colours[1] == green) & (colours[2] == blue), index)
    if bool((labels == IGNORE).any()):
        colour = tuple(int(value) for value in colours[:, labels == IGNORE][:, 0])
        raise UserError(f"label map {file} has a pixel of colour {colour}, which is no class; download it again.")
    padded = _pad(labels)
    return padded if size is None else nearest(padded, size)


def _pad(image: Tensor) -> Tensor:
    return F.pad(image, (3, 3, 3, 3))


def _matched(images: Path, labels: Path) -> list[Pair]:
    maps, files = _by_stem(labels), mixed(_by_stem(images).values(), images)
    if not files:
        raise UserError(f"{images} holds no image; put the images there or correct images=.")
    for file in files:
        if file.stem not in maps:
            raise UserError(f"image {file} has no label map {file.stem} in {labels}; add it or remove the image.")
    return [(file, maps[file.stem]) for file in files]


def _by_stem(folder: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for file in image_files(folder):
        if file.stem in files:
            raise UserError(f"{files[file.stem]} and {file.name} have one name; rename or remove one of them.")
        files[file.stem] = file
    return files


def _checked_map(file: Path, classes: int | None, size: int | None) -> Tensor:
    labels = read_label_map(file)
    if classes is not None:
        check_labels(labels, classes, f"label map {file}")
    return labels if size is None else nearest(labels, size)


def _count_classes(splits: Sequence[Split]) -> int:
    """One more than the highest label; gaps or a single class mean that the maps hold something else."""
    found = sorted({int(label) for split in splits for label in torch.unique(split.targets)} - {IGNORE})
    if len(found) < 2 or found != list(range(len(found))):
        values = ", ".join(map(str, found[:5])) + (", …" if len(found) > 5 else "")
        raise UserError(f"the label maps hold the values {values}, not 0, 1, 2, …; renumber them or say classes=….")
    return len(found)
