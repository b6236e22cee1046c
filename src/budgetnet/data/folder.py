"""A folder of images with one sub-folder per class."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from budgetnet.data.augment import Augmentation
from budgetnet.data.images import SUFFIXES, image_files, read_image, stack
from budgetnet.data.options import Options, divide, scaled
from budgetnet.data.split import DataSet, Split, as_labels
from budgetnet.errors import UserError


def read_folder(options: Options, root: Path | None) -> DataSet:
    """Images by class under `path`; its sub-folders train and test, if both exist, are the two sets."""
    path = require(options.path, "folder", "path")
    train, test = halves(path)
    classes = _classes(train)
    pool = _list(train, classes)
    count, held_out = divide(len(pool), options.validation or tenth(len(pool)), options.limit)
    used, held = (_read(files, classes, options) for files in (pool[:count], pool[held_out:]))
    tested = _read(_list(test, _classes(test, classes)), classes, options) if test else None
    require_one_shape({"training": used, "validation": held, "test": tested})
    crop = scaled(4, 32, min(used.inputs.shape[-2:])) if options.crop is None else options.crop
    return DataSet("folder", "classification", classes, used, held, tested, Augmentation(crop, options.flip))


def require(path: Path | None, name: str, option: str) -> Path:
    """The folder given by an option that the data set cannot do without."""
    if path is None:
        raise UserError(f"data set {name} needs {option}=FOLDER; write for example {name}:{option}=my/images.")
    if not path.is_dir():
        raise UserError(f"data set {name}: folder {path} does not exist; correct {option}=.")
    return path


def halves(path: Path) -> tuple[Path, Path | None]:
    """The folders of training and test images: path/train and path/test if both exist, else all is for training."""
    train, test = path / "train", path / "test"
    return (train, test) if train.is_dir() and test.is_dir() else (path, None)


def tenth(total: int) -> int:
    """How many images to hold out where neither the user nor an official split says so."""
    return max(1, total // 10)


def mixed(files: Iterable[Path], folder: Path) -> list[Path]:
    """Files in the order of a hash of their names: the last ones are a fair sample, the same on every machine."""

    def key(file: Path) -> bytes:
        return hashlib.sha256(file.relative_to(folder).as_posix().encode()).digest()

    return sorted(files, key=key)


def require_one_shape(splits: dict[str, Split | None]) -> None:
    """Refuse sets whose images differ in size from those of the training set."""
    shapes = {name: tuple(split.inputs.shape[-2:]) for name, split in splits.items() if split is not None}
    for name, (height, width) in shapes.items():
        if (height, width) != shapes["training"]:
            raise UserError(
                f"the {name} images are {width}×{height} but the training images are "
                f"{shapes['training'][1]}×{shapes['training'][0]}; add size=… to the data set."
            )


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
