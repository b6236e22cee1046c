"""The official CIFAR files are pickles of Python 2: this reads them, and nothing that could run code.

Only three names may occur in a file, those of a pickled numpy array, and each stands here for an inert class of ours.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from budgetnet.errors import UserError


class _Inert:
    """Accepts what a pickle says about an object and remembers the last of it."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        # Also keeps a file from setting attributes of these classes: without this method pickle would.
        self.state = state


class _Array(_Inert):
    """In place of numpy's array reconstruction."""

    def decode(self) -> NDArray[np.uint8]:
        _, shape, dtype, fortran, data = self.state
        if dtype.arguments[0] != b"u1" or len(data) != math.prod(shape):
            raise pickle.UnpicklingError("an array that is not made of bytes")
        return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Dtype(_Inert):
    """In place of `numpy.dtype`."""


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no official file does")
        return _ALLOWED[module, name]


def read_pickle(file: Path) -> dict[bytes, Any]:
    """The dictionary in an official CIFAR file, its arrays as uint8 arrays; nothing from the file is executed."""
    try:
        with file.open("rb") as stream:
            return _load(stream)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}); check the file and its permissions.") from None
    except Exception as error:  # a forged or damaged pickle can raise anything at all
        reason = str(error).partition("\n")[0].rstrip(".,")
        raise UserError(f"{file} is not an official CIFAR file ({reason}); download it again.") from None


def _load(stream: IO[bytes]) -> dict[bytes, Any]:
    content = _Unpickler(stream, encoding="bytes").load()
    if type(content) is not dict:
        raise pickle.UnpicklingError(f"it holds {type(content).__name__} in place of a dictionary")
    return {key: value.decode() if type(value) is _Array else value for key, value in content.items()}
