"""What a number was measured on: processor, cores, memory, versions. No host names."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """The machine, as certificates name it."""
    return {
        "processor": processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": cores(),
        "memory": _memory(),
        "versions": {"python": platform.python_version(), **versions(("numpy", "onnxruntime"))},
    }


def processor() -> str:
    """The name of the processor, or of the board where the processor has none."""
    for file, key in (("/proc/cpuinfo", "model name"), ("/proc/device-tree/model", "")):
        try:
            lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(key):
                return (line.partition(":")[2] if key else line).strip(" \t\0")
    return platform.processor() or platform.machine() or "unknown"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """The versions of packages, where they are installed.

    Args:
        packages: Their names.

    Returns:
        Versions by name.
    """
    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
