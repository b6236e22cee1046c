"""What torch measures on an accelerator: times by its events, memory by its counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from budgetnet.errors import UserError


def check_device(name: str) -> None:
    """Refuses a device that is no accelerator, or that this machine does not have."""
    kind, _, number = name.partition(":")
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if kind == "cpu":
        raise UserError("device=cpu is what is measured without it; leave it out, or name an accelerator such as cuda")
    if found is None or found.type != kind or (number and not number.isdigit()):
        has = "no accelerator" if found is None else f"{torch.accelerator.device_count()} × {found.type}"
        raise UserError(f"device={name} cannot be measured here: this machine has {has}; measure on one that has it")
    if number and int(number) >= torch.accelerator.device_count():
        raise UserError(f"there are {torch.accelerator.device_count()} {kind} devices here, not {name}; count from 0")


def about(name: str) -> dict[str, str]:
    """What a certificate says about a device: its name for torch, and what its maker calls it."""
    module: Any = torch.get_device_module(torch.device(name).type)
    called = module.get_device_name(torch.device(name)) if hasattr(module, "get_device_name") else name
    return {"device": name, "accelerator": str(called)}


def seconds(run: Callable[[], object], device: str) -> float:
    """How long the device was at work for a run, by its own events: nobody else's work is in it."""
    begin, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1000


def peak(network: nn.Module, inputs: tuple[Tensor, ...], device: str) -> int:
    """Bytes that a forward pass holds at its peak, by the device's counter: values, workspaces, state and input."""
    module: Any = torch.get_device_module(torch.device(device).type)
    if not hasattr(module, "max_memory_allocated"):
        raise UserError(f"torch does not count the memory of {device}; leave device={device} out")
    before = module.memory_allocated(device)
    placed, given = network.to(device).eval(), [value.to(device) for value in inputs]
    try:
        with torch.inference_mode():
            placed(*given)  # what is set up once, such as a library's handles, is not counted
            torch.accelerator.synchronize(device)
            module.reset_peak_memory_stats(device)
            placed(*given)
            torch.accelerator.synchronize(device)
        return int(module.max_memory_allocated(device)) - int(before)
    finally:
        network.cpu()
