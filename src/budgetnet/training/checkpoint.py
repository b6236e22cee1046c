"""Atomic, checksummed checkpoints: nested values with tensors as one safetensors file, named by its content.

Nothing is pickled. A torn or corrupt file does not match its name, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from budgetnet.errors import UserError
from budgetnet.naming.files import TEMPORARY, read_bytes, write_file

KEPT = 2
"""A checkpoint and the one before it."""

_NAME = re.compile(r"(\d{8})-([0-9a-f]{64})\.checkpoint")


def save(folder: Path, number: int, state: Any) -> Path:
    """Writes a state (nested dicts, lists, numbers, texts, tensors), then removes all but the newest checkpoints."""
    tensors: dict[str, Tensor] = {}
    return _write(folder, number, _pack(state, tensors), tensors)


class Writer:
    """Saves checkpoints while their owner goes on: a state is copied at once, and one at a time is on its way to disk.

    `save`, `wait` and the end of the `with` block join the one before, and raise what it met.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._pending: Future[Path] | None = None

    def save(self, number: int, state: Any) -> None:
        """As the function `save`, but later."""
        self.wait()
        tensors: dict[str, Tensor] = {}
        skeleton = _pack(state, tensors)
        self._pending = self._thread.submit(_write, self.folder, number, skeleton, tensors)

    def wait(self) -> None:
        """Until what was saved is on disk."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            self._thread.shutdown()


def _write(folder: Path, number: int, skeleton: Any, tensors: dict[str, Tensor]) -> Path:
    tensors = {name: tensor.cpu() for name, tensor in tensors.items()}
    content = save_safetensors(tensors, metadata={"state": json.dumps(skeleton)})
    path = folder / f"{number:08d}-{hashlib.sha256(content).hexdigest()}.checkpoint"
    write_file(path, content)
    _clear(folder, path)
    return path


def load_all(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Every checkpoint, the newest first, with its state; None for a state that is corrupt."""
    for digest, path in _files(folder):
        content, state = _content(path), None
        if content and hashlib.sha256(content).hexdigest() == digest:
            with suppress(SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError):
                state = _load(content)
        yield path, state


def _content(path: Path) -> bytes:
    """What a checkpoint holds; nothing if it is a link, no regular file, or cannot be read."""
    try:
        return read_bytes(path, follow=False)
    except UserError:
        return b""


def load_latest(folder: Path) -> tuple[Any, list[Path]]:
    """The newest intact state (None if there is none), and the corrupt files that were passed over."""
    corrupt: list[Path] = []
    for path, state in load_all(folder):
        if state is not None:
            return state, corrupt
        corrupt.append(path)
    return None, corrupt


def _clear(folder: Path, newest: Path) -> None:
    """Leaves the newest checkpoint and those before it.

    Higher numbers are damaged ones that a resumed run passed over, temporary files those of a process that was killed.
    """
    before = [path for _, path in _files(folder) if path.name[:8] < newest.name[:8]][: KEPT - 1]
    for path in folder.iterdir():
        if path not in (newest, *before) and (_NAME.fullmatch(path.name) or path.name.startswith(TEMPORARY)):
            path.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Digest and path of the checkpoints in a folder, newest first."""
    if folder.is_dir() and not folder.is_symlink():
        for path in sorted(folder.iterdir(), reverse=True):
            if match := _NAME.fullmatch(path.name):
                yield match[2], path


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A JSON value: dicts become lists of pairs (keys may be numbers), tensors references into `tensors`."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # a copy: its owner goes on to change it, and safetensors refuses tensors that share memory. One on an
        # accelerator stays there until the thread that writes it fetches it, so that nobody else waits
        tensors[name] = value.detach().to(value.device, copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return {"tuple" if isinstance(value, tuple) else "list": [_pack(item, tensors) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a checkpoint holds no {type(value).__name__}")


def _load(content: bytes) -> Any:
    header_length = int.from_bytes(content[:8], "little")
    skeleton = json.loads(content[8 : 8 + header_length])["__metadata__"]["state"]
    return _unpack(json.loads(skeleton), load_safetensors(content))


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_unpack(key, tensors): _unpack(item, tensors) for key, item in content}
    items = [_unpack(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items
