"""A folder of images with one sub-folder per class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from budgetnet.data.augment import Augmentation
from budgetnet.data.images import SUFFIXES, image_files, image_sizes, read_image, stack
from budgetnet.data.options import Options, divide, scaled
from budgetnet.data.split import DataSet, Split, as_labels
from budgetnet.errors import UserError
from budgetnet.naming.files import is_folder

T = TypeVar("T")
UNEQUAL_SIDE = 64
"""Images of unequal size are resized to a square of this side at most, unless the user gives one."""


def read_folder(options: Options, root: Path | None) -> DataSet:
    """Images by class under `path`; its sub-folders train, validation and test are used where they exist."""
    path = require(options.path, "folder", "path")
    train, validation, test = parts(path)
    classes = _classes(train)
    pool = _list(train, classes)
    held: list[Path] = _list(validation, _classes(validation, classes)) if validation else []
    tested: list[Path] = _list(test, _classes(test, classes)) if test else []
    pool, held = held_out(pool, held, options)
    options, notes = with_one_size(options, [*pool, *held, *tested])
    used, kept, judged = (_read(files, classes, options) if files else None for files in (pool, held, tested))
    assert used is not None
    assert kept is not None
    crop = scaled(4, 32, min(used.inputs.shape[-2:])) if options.crop is None else options.crop
    augmentation = Augmentation(crop, options.flip)
    return DataSet("folder", "classification", classes, used, kept, judged, augmentation, notes)


def held_out(pool: list[T], held: list[T], options: Options) -> tuple[list[T], list[T]]:
    """Training and validation files: the last ones of the training files are held out where there are no others."""
    if held:
        return pool[: options.limit], held
    count, begin = divide(len(pool), options.validation or tenth(len(pool)), options.limit)
    return pool[:count], pool[begin:]


def with_one_size(options: Options, files: Sequence[Path]) -> tuple[Options, tuple[str, ...]]:
    """The options with a size if the images differ in theirs and the user gave none, and a sentence that says so."""
    if options.size is not None:
        return options, ()
    sizes = image_sizes(files)
    if len(set(sizes)) == 1:
        return options, ()
    sides = sorted(min(size) for size in sizes)
    side = min(UNEQUAL_SIDE, max(sides[len(sides) // 2] // 8 * 8, 8))
    note = (
        f"the images have {len(set(sizes))} sizes, from {sides[0]} pixels on the short side; they are resized to "
        f"{side}×{side}: add size=… to the data set for another side"
    )
    return replace(options, size=side), (note,)


def require(path: Path | None, name: str, option: str) -> Path:
    """The folder given by an option that the data set cannot do without."""
    if path is None:
        raise UserError(f"data set {name} needs {option}=FOLDER; write for example {name}:{option}=my/images.")
    if not is_folder(path):
        raise UserError(f"data set {name}: folder {path} does not exist; correct {option}=.")
    return path


def parts(path: Path) -> tuple[Path, Path | None, Path | None]:
    """The folders of training, validation and test images: train, validation (or val, valid) and test inside a path.

    Without a folder train, or with nothing beside it, everything is for training.
    """
    found = [path / name for name in ("validation", "val", "valid", "test") if (path / name).is_dir()]
    if not (path / "train").is_dir() or not found:
        return path, None, None
    held = [folder for folder in found if folder.name != "test"]
    return path / "train", held[0] if held else None, path / "test" if path / "test" in found else None


def tenth(total: int) -> int:
    """How many images to hold out where neither the user nor an official split says so."""
    return max(1, total // 10)


def mixed(files: Iterable[Path], folder: Path) -> list[Path]:
    """Files in the order of a hash of their names: the last ones are a fair sample, the same on every machine."""

    def key(file: Path) -> bytes:
        return hashlib.sha256(file.relative_to(folder).as_posix().encode()).digest()

    return sorted(files, key=key)


def _classes(folder: Path, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
    names = sorted(child.name for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if known is None and len(names) < 2:
        raise UserError(
            f"{folder} has {len(names)} sub-folders; give one sub-folder of images per class, at least two."
        )
    unknown = set(names) - set(names if known is None else known)
    if unknown:
        raise UserError(f"{folder / min(unknown)} is a class without training images; add some or remove it.")
    return tuple(names)


def _list(folder: Path, classes: tuple[str, ...]) -> list[Path]:
    files: list[Path] = []
    for name in classes:
        found = image_files(folder / name)
        if not found:
            raise UserError(
                f"class folder {folder / name} is empty; add images to it ({' '.join(SUFFIXES)}) or remove the folder."
            )
        files += found
    return mixed(files, folder)


def _read(files: Sequence[Path], classes: tuple[str, ...], options: Options) -> Split:
    images = stack(files, partial(read_image, grey=options.grey, size=options.size))
    number = {name: index for index, name in enumerate(classes)}
    labels = as_labels([number[file.parent.name] for file in files], len(classes), str(files[0].parent))
    return Split(images, labels)
