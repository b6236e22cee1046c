"""A user's checkpoint of tensors, loaded into their model; what does not fit is named."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from budgetnet.errors import UserError
from budgetnet.naming.files import read_bytes

SHOWN = 3
"""Names of each kind that a message lists."""
WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts keep the weights among other things."""


def load_weights(model: nn.Module, path: Path) -> None:
    """Loads a checkpoint into a model.

    Args:
        model: Gets the weights.
        path: A `.safetensors` file, or one that `torch.save` wrote, which is read as tensors alone.

    Raises:
        UserError: If the file cannot be read, or has other tensors than the model.
    """
    found = read_tensors(path)
    own = model.state_dict()
    if found and all(name.startswith("module.") for name in found) and not set(found) & set(own):
        found = {name.removeprefix("module."): tensor for name, tensor in found.items()}
    counters = {name for name in own if name.endswith("num_batches_tracked")}
    missing = [name for name in own if name not in found and name not in counters | _tied(own, found)]
    unexpected = [name for name in found if name not in own]
    misshapen = [name for name in own if name in found and own[name].shape != found[name].shape]
    sizes = [f"{name} ({_shape(found[name])}, the model has {_shape(own[name])})" for name in misshapen]
    problems = [
        _listed(kind, names)
        for kind, names in (("missing", missing), ("unexpected", unexpected), ("misshapen", sizes))
        if names
    ]
    if problems:
        raise UserError(
            f"{path} does not fit {type(model).__name__}: {'; '.join(problems)}; give the weights of this model, or "
            "build the model that they are of"
        )
    model.load_state_dict(found, strict=False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name; nothing else in the file is read."""
    content = read_bytes(path)
    try:
        if path.suffix == ".safetensors":
            return load_safetensors(content)
        value: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError):
        raise UserError(
            f"{path} holds no tensors that can be read safely; save the model's state_dict() with "
            "safetensors.torch.save_file or torch.save"
        ) from None
    for key in WRAPPERS:
        if isinstance(value, Mapping) and isinstance(value.get(key), Mapping):
            value = value[key]
    if not isinstance(value, Mapping) or not value or not all(isinstance(tensor, Tensor) for tensor in value.values()):
        raise UserError(f"{path} holds no state_dict of tensors; save model.state_dict()")
    return {str(name): tensor for name, tensor in value.items()}


def _tied(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> set[str]:
    """Names whose tensor the file has under another name, since the model uses it twice."""
    given = {own[name].data_ptr() for name in found if name in own}
    return {name for name, tensor in own.items() if tensor.numel() and tensor.data_ptr() in given}


def _listed(kind: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{kind} {', '.join(names[:SHOWN])}{more}"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"
