"""What a number was made on: the machine and the versions. No host names."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("budgetnet", "torch", "numpy", "safetensors", "onnx", "onnxruntime")


def environment() -> dict[str, Any]:
    """The machine and the versions, as certificates and configurations keep them."""
    return {"machine": machine(), "versions": versions()}


def machine() -> dict[str, Any]:
    """Processor, cores, memory, threads in use."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """Python and the packages that matter, where they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
