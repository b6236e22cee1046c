"""The options of a data set, as written after its name: `cifar10:size=16,limit=30000`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming import written_options


@dataclass(frozen=True)
class Options:
    """What a user asked of a data set; None is the data set's own default."""

    size: int | None = None
    limit: int | None = None
    validation: int | None = None
    crop: int | None = None
    flip: bool = True
    grey: bool = False
    download: bool = False
    classes: int | None = None
    path: Path | None = None
    images: Path | None = None
    labels: Path | None = None


@dataclass(frozen=True)
class Option:
    """How the text of one option becomes a value: `parse` raises ValueError, `expects` says what it accepts."""

    help: str
    expects: str
    parse: Callable[[str], object]


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
        raise ValueError(text)
    return int(text)


def _pixels(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _folder(text: str) -> Path:
    if not text:
        raise ValueError(text)
    return Path(text).expanduser()


_COUNT = "a whole number of at least 1"
_FLAG = "true or false"
_FOLDER = "a folder"

OPTIONS: Mapping[str, Option] = {
    "size": Option("down-sample to a square of this side", _COUNT, _count),
    "limit": Option("use at most this many training images", _COUNT, _count),
    "validation": Option("hold out this many of the last training images", _COUNT, _count),
    "crop": Option("pixels of padding for the random crop", "a whole number of at least 0", _pixels),
    "flip": Option("flip images horizontally at random", _FLAG, _flag),
    "grey": Option("read images as greyscale", _FLAG, _flag),
    "download": Option("download the official files if they are missing", _FLAG, _flag),
    "classes": Option("number of classes in the label maps", _COUNT, _count),
    "path": Option("folder with one sub-folder of images per class", _FOLDER, _folder),
    "images": Option("folder of images", _FOLDER, _folder),
    "labels": Option("folder of label maps, named as their images", _FOLDER, _folder),
}


def parse_options(name: str, text: str, accepted: tuple[str, ...]) -> Options:
    """The options of the data set `name` from "key=value,…"; a comma that starts no key belongs to the value."""
    values: dict[str, Any] = {}
    for item, key, value in written_options(text, commas=True):
        if key is None:
            raise UserError(f"data set {name}: option {item!r} has no value; write it as key=value.")
        if key not in accepted:
            raise UserError(f"data set {name} has no option {key!r}; it accepts {', '.join(accepted)}.")
        if key in values:
            raise UserError(f"data set {name}: option {key!r} is given twice; keep one of them.")
        values[key] = _parse(name, key, value)
    return Options(**values)


def _parse(name: str, key: str, value: str) -> object:
    option = OPTIONS[key]
    try:
        return option.parse(value)
    except (ValueError, KeyError):
        raise UserError(f"data set {name}: {key}={value} is not allowed; {key} must be {option.expects}.") from None


def divide(total: int, validation: int, limit: int | None) -> tuple[int, int]:
    """Of `total` examples, how many of the first are for training and where the held-out last ones begin."""
    if validation >= total:
        raise UserError(
            f"validation={validation} leaves nothing to train on out of {total} training images; use a smaller number."
        )
    begin = total - validation
    return min(limit or begin, begin), begin


def scaled(pixels: int, native: int, side: int) -> int:
    """A crop of `pixels` meant for images of side `native`, in proportion for another side."""
    return max(1, round(pixels * side / native))
