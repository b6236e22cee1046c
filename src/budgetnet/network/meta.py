"""Runs on the meta device: shapes and operations without numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def on_meta(module: nn.Module, *inputs: Any) -> Any:
    """Runs a module in eval mode on the meta device: shapes and operations, no numbers, no effect on the module."""
    state = {name: value.to("meta") for name, value in [*module.named_parameters(), *module.named_buffers()]}
    training = [child for child in module.modules() if child.training]
    for child in training:
        child.training = False
    try:
        with torch.no_grad():
            return functional_call(module, state, inputs)
    finally:
        for child in training:
            child.training = True


def example(shape: Sequence[int], dtype: torch.dtype = torch.float32, batch: int = 2) -> Tensor:
    """An input for `on_meta`; two examples, so that a module that mixes them up is found out."""
    return torch.empty((batch, *shape), dtype=dtype, device="meta")
