"""What a number was made on: the machine and the versions. No host names."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from budgetnet.costs import accelerators
from budgetnet.costs.latency.meter import machine as machines

PACKAGES = ("budgetnet", "torch", "numpy", "safetensors", "onnx", "onnxruntime")


def environment() -> dict[str, Any]:
    """The machine and the versions, as certificates and configurations keep them."""
    return {"machine": machine(), "versions": versions()}


def machine(device: str = "cpu") -> dict[str, Any]:
    """Processor, cores, threads in use, and the accelerator if the work was done on one.

    Args:
        device: Where the work was done: an accelerator that had no part in it is not named.
    """
    return {
        "processor": machines.processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerator": None if device == "cpu" else accelerators.about(device)["accelerator"],
    }


def versions() -> dict[str, str]:
    """Python and the packages that matter, where they are installed."""
    return {"python": platform.python_version(), **machines.versions(PACKAGES)}
