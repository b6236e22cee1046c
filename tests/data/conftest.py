"""Writers of official file formats, byte by byte, and a check that an error is one sentence."""

import gzip
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from budgetnet.errors import UserError

Refuses = Callable[..., AbstractContextManager[None]]


def _string(data: bytes) -> bytes:
    return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data


def _encode(value: object) -> bytes:
    if isinstance(value, bytes):
        return _string(value)
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_encode, value)) + b"e"
    assert isinstance(value, np.ndarray)
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"(" + b"".join(map(_encode, value.shape)) + b"t"
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return empty + b"(K\x01" + shape + dtype + b"\x89" + _string(value.tobytes()) + b"tb"


@pytest.fixture(scope="session")
def python2_pickle() -> Callable[[dict[bytes, object]], bytes]:
    """A dictionary as Python 2 and numpy 1 pickled it, with protocol 2: the form of the official CIFAR files."""

    def write(content: dict[bytes, object]) -> bytes:
        items = b"".join(_string(key) + _encode(value) for key, value in content.items())
        return b"\x80\x02}(" + items + b"u."

    return write


@pytest.fixture
def cifar10(
    tmp_path: Path, python2_pickle: Callable[[dict[bytes, object]], bytes]
) -> tuple[Path, np.ndarray, list[int]]:
    """A data folder with CIFAR-10 of 8 images a file; its 48 images in order, and their labels."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (48, 3072), dtype=np.uint8)
    labels = [int(label) for label in np.random.default_rng(1).integers(0, 10, 48)]
    for k, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        part = slice(8 * k, 8 * k + 8)
        content = {b"batch_label": name.encode(), b"labels": labels[part], b"data": images[part]}
        (folder / name).write_bytes(python2_pickle(content))
    names = [f"class {i}".encode() for i in range(10)]
    (folder / "batches.meta").write_bytes(python2_pickle({b"num_cases_per_batch": 8, b"label_names": names}))
    return tmp_path, images.reshape(-1, 3, 32, 32), labels


@pytest.fixture(scope="session")
def write_idx() -> Callable[[Path, np.ndarray], None]:
    """Write an array of bytes as an idx file, packed if the name ends in .gz."""

    def write(file: Path, array: np.ndarray) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)

    return write


@pytest.fixture(scope="session")
def write_image() -> Callable[[Path, np.ndarray], None]:
    """Write uint8 pixels H×W or H×W×3 as an image file."""

    def write(file: Path, pixels: np.ndarray) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(file)

    return write


@pytest.fixture(scope="session")
def refuses() -> Refuses:
    """A context whose body must raise a UserError of one sentence that mentions all the given words."""

    @contextmanager
    def check(*words: object) -> Iterator[None]:
        with pytest.raises(UserError) as caught:
            yield
        message = str(caught.value)
        assert message.endswith(".")
        assert "\n" not in message
        assert ". " not in message
        assert ";" in message, "the remedy follows a semicolon"
        for word in words:
            assert str(word) in message

    return check
