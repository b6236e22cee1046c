"""What a measurement is given: inputs that are always the same, int8 files without data, architectures by a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from budgetnet.export.int8 import quantise
from budgetnet.network.graph import Architecture
from budgetnet.network.inputs import InputSpec

Array = np.ndarray[Any, np.dtype[np.float32]]


def random_images(batch: int, input_shape: Sequence[int]) -> Array:
    """The inputs of a measurement: always the same."""
    images: Tensor = torch.rand((batch, *input_shape), generator=torch.Generator().manual_seed(0))
    return images.numpy()


def random_inputs(spec: InputSpec, batch: int) -> Any:
    """The inputs of a measurement, always the same: an array, or several by name; whole numbers and masks are zeros."""
    pairs = list(zip(spec.shapes, spec.dtypes, strict=True))
    arrays = [
        random_images(batch, shape).astype(str(dtype).removeprefix("torch.").replace("bfloat16", "float32"))
        if dtype.is_floating_point
        else torch.zeros((batch, *shape), dtype=dtype).numpy()
        for shape, dtype in pairs
    ]
    return arrays[0] if len(arrays) == 1 else dict(zip(spec.names, arrays, strict=True))


def roughly_int8(model: bytes, input_shape: Sequence[int]) -> bytes:
    """An int8 file with the bytes and the speed of the real one, calibrated on noise: no training data are needed."""
    return quantise(model, [random_images(2, input_shape)])


def key_of(architecture: Architecture) -> str:
    """An architecture's live gates as the text that `state_dict()` has for it."""
    return np.packbits(architecture.live().gates().numpy()).tobytes().hex()


def gates_of(key: str, edges: int) -> Tensor:
    """The inverse of `key_of`, for a graph of so many edges."""
    return torch.from_numpy(np.unpackbits(np.frombuffer(bytes.fromhex(key), np.uint8), count=edges).astype(bool))
