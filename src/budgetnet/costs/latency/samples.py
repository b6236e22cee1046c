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
    """The inputs of a measurement: always the same.

    Args:
        batch: Inputs at a time.
        input_shape: The shape of one input.

    Returns:
        Numbers in [0, 1), batch first.
    """
    images: Tensor = torch.rand((batch, *input_shape), generator=torch.Generator().manual_seed(0))
    return images.numpy()


def random_inputs(spec: InputSpec, batch: int) -> Any:
    """The inputs of a measurement, always the same: an array, or several by name; whole numbers and masks are zeros.

    Args:
        spec: The network's inputs: names, shapes and types.
        batch: Inputs at a time.

    Returns:
        An array, or a dict of arrays by name.
    """
    pairs = list(zip(spec.shapes, spec.dtypes, strict=True))
    arrays = [
        random_images(batch, shape).astype(str(dtype).removeprefix("torch.").replace("bfloat16", "float32"))
        if dtype.is_floating_point
        else torch.zeros((batch, *shape), dtype=dtype).numpy()
        for shape, dtype in pairs
    ]
    return arrays[0] if len(arrays) == 1 else dict(zip(spec.names, arrays, strict=True))


def roughly_int8(model: bytes, input_shape: Sequence[int]) -> bytes:
    """An int8 file with the bytes and the speed of the real one, calibrated on noise: no training data are needed.

    Args:
        model: The bytes of a float32 ONNX file.
        input_shape: The shape of one input.

    Returns:
        The bytes of the int8 file.
    """
    return quantise(model, [random_images(2, input_shape)])


def key_of(architecture: Architecture) -> str:
    """An architecture's live gates as the text that `state_dict()` has for it.

    Args:
        architecture: The architecture; gates that are not live do not count.

    Returns:
        The text, two letters for eight edges.
    """
    return np.packbits(architecture.live().gates().numpy()).tobytes().hex()


def gates_of(key: str, edges: int) -> Tensor:
    """The inverse of `key_of`, for a graph of so many edges.

    Args:
        key: A text that `key_of` gave.
        edges: The number of edges of the graph.

    Returns:
        The live gates, one for each edge.
    """
    return torch.from_numpy(np.unpackbits(np.frombuffer(bytes.fromhex(key), np.uint8), count=edges).astype(bool))
