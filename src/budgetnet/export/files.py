"""Model files: written whole or not at all, sealed with a checksum, and read only if it still fits."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError

CHECKSUM = "budgetnet.checksum"
UNSEALED = "0" * 64
"""Stands where the checksum will be while it is computed."""

TEMPORARY = ".writing-"
"""The beginning of the name of a file that is not whole yet."""

_SEAL = re.compile(re.escape(CHECKSUM.encode()) + rb"[^0-9a-f]{1,5}([0-9a-f]{64})")


def sha256(data: bytes) -> str:
    """The checksum of certificates."""
    return hashlib.sha256(data).hexdigest()


def seal(data: bytes) -> bytes:
    """Puts the checksum of a file, computed with zeros in its place, into the file."""
    match = _SEAL.search(data)
    assert match is not None, "the writer left no place for the checksum"
    return data[: match.start(1)] + sha256(data).encode() + data[match.end(1) :]


def check_seal(data: bytes, path: Path) -> None:
    """Refuses a file that budgetnet did not write, or that is no longer what it wrote."""
    match = _SEAL.search(data)
    if match is None:
        raise UserError(f"{path} is not a model that budgetnet exported; give one made by `budgetnet export`")
    blank = data[: match.start(1)] + UNSEALED.encode() + data[match.end(1) :]
    if sha256(blank) != match[1].decode():
        raise UserError(f"{path} was changed after its export: its checksum does not match; export it again")


def read(path: Path) -> bytes:
    """The bytes of a file that must exist."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path") from None


def read_json(path: Path) -> Any:
    """The value of a JSON file that must exist."""
    try:
        return json.loads(read(path))
    except ValueError as error:
        raise UserError(f"{path} does not hold JSON ({error}); restore the file") from None


def write(path: Path, data: bytes, *, force: bool = False) -> None:
    """Writes beside the target and renames, so that a reader never sees half a file; replaces one only if forced."""
    if path.exists() and not force:
        raise UserError(f"{path} exists already; choose another name, or replace it with --force")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}); choose a folder that exists and is yours"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written ({error.strerror}); make room or choose another folder") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all, whatever happens meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=TEMPORARY)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise UserError(
            f"{path} could not be written ({reason}); what was saved before is whole: make room there and resume"
        ) from error


def certificate_beside(path: Path) -> Mapping[str, Any] | None:
    """The certificate that came with a file: beside it under its own name, or of the run that it lies in."""
    for candidate in (path.with_name(f"{path.name}.certificate.json"), path.with_name("certificate.json")):
        if candidate.exists():
            value: Mapping[str, Any] = read_json(candidate)
            return value
    return None


def check_against_certificate(data: bytes, path: Path) -> None:
    """Refuses a file, such as a torch program, whose checksum is in no certificate beside it."""
    certificate = certificate_beside(path)
    if certificate is None:
        raise UserError(
            f"{path} has no certificate beside it ({path.name}.certificate.json or certificate.json), and a torch "
            "program is loaded only where its checksum matches one; keep both together, or use ONNX"
        )
    if sha256(data) not in certificate.get("checksums", {}).values():
        raise UserError(f"the checksum of {path} is not in the certificate beside it; export it again")
