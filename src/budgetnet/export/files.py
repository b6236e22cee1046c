"""Model files: sealed with a checksum, and read only if it still fits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import read_json

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
