"""The data sets that a name on the command line can mean."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from budgetnet.data.cifar import read_cifar10, read_cifar100
from budgetnet.data.embedded import read_embedded
from budgetnet.data.fashion import read_fashion_mnist
from budgetnet.data.folder import read_folder
from budgetnet.data.options import OPTIONS, Option, Options, parse_options
from budgetnet.data.segmentation import read_parts, read_segmentation_folder
from budgetnet.data.split import DataSet
from budgetnet.errors import UserError
from budgetnet.naming.files import is_folder

ROOT_VARIABLE = "BUDGETNET_DATA"

_COMMON = ("size", "limit", "validation", "crop", "flip")


@dataclass(frozen=True)
class Source:
    """A data set that can be named: how it is read, what it is, and which options it accepts."""

    read: Callable[[Options, Path | None], DataSet]
    help: str
    accepts: tuple[str, ...]

    @property
    def options(self) -> dict[str, Option]:
        """The options with their descriptions."""
        return {name: OPTIONS[name] for name in self.accepts}


DATASETS: Mapping[str, Source] = {
    "embedded": Source(
        read_embedded, "9,000 images of Fashion-MNIST inside the package, 28×28 grey, 10 classes", _COMMON
    ),
    "cifar10": Source(
        read_cifar10, "CIFAR-10 from its official Python files, 32×32, 10 classes", (*_COMMON, "download")
    ),
    "cifar100": Source(
        read_cifar100, "CIFAR-100 from its official Python files, 32×32, 100 classes", (*_COMMON, "download")
    ),
    "fashion-mnist": Source(
        read_fashion_mnist, "Fashion-MNIST from its official idx files, 28×28 grey, 10 classes", (*_COMMON, "download")
    ),
    "folder": Source(
        read_folder,
        "your images, one sub-folder per class; train/, validation/ and test/ are used; also just PATH",
        ("path", *_COMMON, "grey"),
    ),
    "lfw-parts": Source(
        read_parts, "Part Labels of LFW in its official layout, 256×256, hair, skin and background", _COMMON
    ),
    "segmentation-folder": Source(
        read_segmentation_folder,
        "your images and label maps in two folders; train/, validation/ and test/ in each are used",
        ("images", "labels", *_COMMON, "grey", "classes"),
    ),
}


def load(spec: str = "embedded", root: Path | str | None = None) -> DataSet:
    """A data set by name.

    Args:
        spec: `NAME[:key=value,…]`, or the path of a folder of classes.
        root: The folder of official files; $BUDGETNET_DATA if None.

    Returns:
        Training, validation and test data with their description.
    """
    name, _, options = spec.partition(":")
    if name not in DATASETS:
        name, options = _folder(spec)
    folder = root or os.environ.get(ROOT_VARIABLE)
    source = DATASETS[name]
    return source.read(parse_options(name, options, source.accepts), Path(folder).expanduser() if folder else None)


def _home(text: str) -> Path:
    """A path with the user's folder for `~`, where there is such a user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _folder(spec: str) -> tuple[str, str]:
    """The folder data set of PATH[:key=value,…]."""
    text, _, options = (spec, "", "") if is_folder(_home(spec)) else spec.rpartition(":")
    path = text or spec
    if not path or not is_folder(_home(path)):
        raise UserError(
            f"there is no data set {spec.partition(':')[0]!r}; choose one of {', '.join(DATASETS)}, "
            "or give a folder with a sub-folder of images per class."
        )
    return "folder", f"path={path}" + (f",{options}" if options else "")
