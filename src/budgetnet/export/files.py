"""Model files: sealed with a checksum, and read only if it still fits."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from budgetnet.errors import UserError

CHECKSUM = "budgetnet.checksum"
UNSEALED = "0" * 64
"""Stands where the checksum will be while it is computed."""

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
