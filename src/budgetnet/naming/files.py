"""The one checked reader of files that others may have written, and the one writer: whole or not at all.

Only regular files are opened, up to a size; JSON has a limited depth, is UTF-8 and names no key twice. What comes out
is a plain value: `values.typed` makes it a value with a type.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.values import printable

LARGEST = 64 * 2**20
"""Bytes of a text file that are still read: the records of a run of 300 epochs take a few megabytes."""
LARGEST_BINARY = 16 * 2**30
"""Bytes of a file of weights or of a model that are still read."""
DEEPEST = 32
"""Levels of nested lists and objects: the files of a run have at most six."""
TEMPORARY = ".writing-"
"""The beginning of the name of a file that is not whole yet."""


class Missing(UserError):  # noqa: N818
    """There is no such file."""


def read_bytes(path: Path, largest: int = LARGEST_BINARY, *, follow: bool = True) -> bytes:
    """The content of a regular file.

    Args:
        path: The file. A pipe, a device or a folder is refused, and never waited for.
        largest: The number of bytes above which nothing is read.
        follow: Whether the file may be a symbolic link; inside a run folder it may not.

    Returns:
        The bytes.

    Raises:
        Missing: There is no such file.
        UserError: There is one that cannot or should not be read.
    """
    try:
        _check(path, path.stat() if follow else path.lstat(), largest)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        with os.fdopen(handle, "rb") as file:
            _check(path, os.fstat(handle), largest)
            content = file.read(largest + 1)
    except FileNotFoundError as error:
        raise Missing(f"{path} cannot be read ({error.strerror}); check the path") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({_reason(error)}); check the path") from None
    except ValueError as error:  # a path with a null character
        if isinstance(error, UserError):
            raise
        raise UserError(f"{printable(path)} cannot be read ({error}); check the path") from None
    if len(content) > largest:
        raise _too_large(path, largest)
    return content


def _check(path: Path, status: os.stat_result, largest: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UserError(f"{path} is a symbolic link, and none is followed inside a run folder; put the file there")
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} cannot be read: it is not a regular file; check the path")
    if status.st_size > largest:
        raise _too_large(path, largest)


def _too_large(path: Path, largest: int) -> UserError:
    return UserError(f"{path} is larger than {largest // 2**20} MB and was not read; restore the file")


def read_text(path: Path, largest: int = LARGEST, *, follow: bool = True) -> str:
    """The content of a UTF-8 file; see `read_bytes`."""
    try:
        return read_bytes(path, largest, follow=follow).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start}); restore the file") from None


def read_json(path: Path, *, follow: bool = True) -> Any:
    """The value in a JSON file; see `read_bytes`."""
    return parse_json(read_text(path, follow=follow), str(path))


def read_lines(path: Path, *, follow: bool = True) -> tuple[list[Any], bool]:
    """The values of a file with one JSON value a line, and whether it is whole.

    A killed run leaves its last line torn: the first line that is no JSON ends the reading. So does one that is torn
    within a character, since the rest of the file is read as far as it is UTF-8.
    """
    values: list[Any] = []
    for line in read_bytes(path, LARGEST, follow=follow).split(b"\n"):
        if not line:
            continue
        try:
            values.append(parse_json(line.decode("utf-8"), str(path)))
        except ValueError:  # UserError and UnicodeDecodeError among them
            return values, False
    return values, True


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; see `read_bytes`."""
    try:
        value = tomllib.loads(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not TOML ({printable(error)}); correct it") from None
    if depth(value) > DEEPEST:
        raise UserError(f"{path} is nested deeper than {DEEPEST} levels; correct it")
    return value


def parse_json(text: str, where: str) -> Any:
    """The value that a JSON text stands for, if it is not too deep and names no key of an object twice."""
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be neither shown nor written
    except RecursionError:
        raise UserError(f"{where} is nested deeper than {DEEPEST} levels; restore the file") from None
    except ValueError as error:
        raise UserError(f"{where} does not hold JSON ({printable(error)}); restore the file") from None
    if text.count("[") + text.count("{") > DEEPEST and depth(value) > DEEPEST:
        raise UserError(f"{where} is nested deeper than {DEEPEST} levels; restore the file")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def depth(value: Any) -> int:
    """How many levels of lists and objects a value has; one more than the limit stands for anything deeper."""
    level, inner = 0, [value]
    while level <= DEEPEST:
        inner = [child for item in inner for child in _children(item)]
        if not inner:
            break
        level += 1
    return level


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def is_file(path: Path) -> bool:
    """Whether a text that may be anything names a file; one that is too long for a name does not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a text that may be anything names a folder."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def write_file(path: Path, content: bytes, *, replace: bool = True) -> Path:
    """Writes a file beside its target and renames it, so that a reader never sees half a file.

    Args:
        path: The target; its folder is made if it is missing. A symbolic link there is replaced, not followed.
        content: The bytes.
        replace: Whether a file that exists is replaced; otherwise it is refused.

    Returns:
        The path.
    """
    if not replace:
        refuse_replacing(path)
    part = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(handle)
            if not replace:
                refuse_replacing(path)
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({_reason(error)}); what was saved before is whole: make room there, or choose "
            "another place"
        ) from error
    return path


def refuse_replacing(path: Path) -> None:
    """Refuses a target that exists: asked before any work, and again by the writing itself."""
    if os.path.lexists(path):
        raise UserError(f"{path} exists already; choose another name, or replace it with --force")


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno == errno.ELOOP:
        return "a symbolic link stands in its place"
    return error.strerror or type(error).__name__
