"""What a number was made on: the machine and the versions. No host names."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from budgetnet.costs.latency.meter import machine as machines

PACKAGES = ("budgetnet", "torch", "numpy", "safetensors", "onnx", "onnxruntime")


def environment() -> dict[str, Any]:
    """The machine and the versions, as certificates and configurations keep them."""
    return {"machine": machine(), "versions": versions()}


def machine() -> dict[str, Any]:
    """Processor, cores, memory, threads in use."""
    return {
        "processor": machines.processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """Python and the packages that matter, where they are installed."""
    return {"python": platform.python_version(), **machines.versions(PACKAGES)}
