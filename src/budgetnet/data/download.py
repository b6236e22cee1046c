"""Official archives from the network: checked, and never half there."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import build_opener

from rich.console import Console
from rich.progress import wrap_file

from budgetnet.errors import UserError


@dataclass(frozen=True)
class Archive:
    """One official file: its address, its md5, and the path under the data folder that it becomes."""

    url: str
    md5: str
    path: str


def _fashion(file: str, md5: str) -> Archive:
    return Archive(
        f"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/{file}", md5, f"fashion-mnist/{file}"
    )


ARCHIVES: Mapping[str, tuple[Archive, ...]] = {
    "cifar10": (
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            "cifar-10-batches-py",
        ),
    ),
    "cifar100": (
        Archive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-python",
        ),
    ),
    "fashion-mnist": (
        _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
        _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
        _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
        _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}


def download(name: str, root: Path) -> None:
    """Fetches the official files of a data set; those already there are left alone.

    Args:
        name: The data set.
        root: The folder of official files.
    """
    if name not in ARCHIVES:
        raise UserError(f"data set {name} cannot be downloaded; those that can are {', '.join(ARCHIVES)}.")
    for archive in ARCHIVES[name]:
        obtain(archive, root)


def obtain(archive: Archive, root: Path) -> Path:
    """Fetch one archive, check it, unpack it if it is a tar file, and put it in place in one step."""
    target = root / archive.path
    if target.exists():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as scratch:
            packed = Path(scratch) / "archive"
            _fetch(archive, packed)
            (_unpack(packed, Path(scratch) / "unpacked") / target.name if _is_tar(archive) else packed).rename(target)
    except (OSError, HTTPException, tarfile.TarError) as error:
        raise UserError(
            f"could not download {archive.url} to {target} ({_reason(error)}); "
            "try again, or get the file on another machine and unpack it there."
        ) from None
    return target


def _fetch(archive: Archive, target: Path) -> None:
    digest = hashlib.md5(usedforsecurity=False)
    # An opener of its own, since urlopen keeps the proxies of its first call for ever.
    with build_opener().open(archive.url, timeout=60) as response, target.open("wb") as file:
        for block in _blocks(response, archive.url.rpartition("/")[2]):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != archive.md5:
        raise UserError(
            f"{archive.url} has md5 {digest.hexdigest()} but the official file has {archive.md5}; "
            "it was damaged or replaced on its way, so try again."
        )


def _blocks(response: HTTPResponse, title: str) -> Iterator[bytes]:
    """The body in blocks, with a progress bar when a person is looking."""
    console = Console(stderr=True)
    total = int(response.headers.get("Content-Length", 0))
    with wrap_file(response, total, description=title, console=console, disable=not console.is_terminal) as stream:
        while block := stream.read(1 << 20):
            yield block


def _is_tar(archive: Archive) -> bool:
    return archive.url.endswith((".tar.gz", ".tgz", ".tar"))


def _unpack(packed: Path, folder: Path) -> Path:
    """Regular files alone, none of them outside; the filters of `extractall` are not in every Python 3.11."""
    with tarfile.open(packed) as tar:
        for member in tar:
            target = (folder / member.name.lstrip("/")).resolve()
            if not target.is_relative_to(folder.resolve()):
                raise tarfile.TarError(f"{member.name} in it leads out of its folder")
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    shutil.copyfileobj(content, file)
    return folder


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        error.close()  # it holds the connection
    return str(getattr(error, "reason", None) or error or type(error).__name__)
