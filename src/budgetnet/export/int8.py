"""Static quantisation to int8 by ONNX Runtime: weights per channel, activations by the ranges seen on sample inputs."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from budgetnet.errors import UserError, reason

PRECISIONS = ("fp32", "int8")

Array = np.ndarray[Any, np.dtype[np.float32]]


def check_precision(precision: str) -> None:
    """Refuses a precision that no file has."""
    if precision not in PRECISIONS:
        raise UserError(f"precision={precision} does not exist; use {' or '.join(PRECISIONS)}")


def quantise(model: bytes, samples: Iterable[Array]) -> bytes:
    """An ONNX model with int8 weights and activations, in the standard's own operators.

    Args:
        model: A float32 model with one input.
        samples: Batches of inputs; the ranges of all activations are those seen on them. Training data, where
            accuracy counts; anything of the right shape, where only bytes or milliseconds do.

    Returns:
        The quantised model: weights of convolutions and linear layers as int8 with a scale for each output channel,
        activations as uint8 with one scale for each tensor. What scales the inputs stays float32.
    """
    try:
        from onnxruntime import quantization  # type: ignore[import-untyped]
    except ImportError as error:
        raise UserError(
            f"int8 needs the package {error.name}, which is not installed: pip install 'budgetnet[export]'"
        ) from None
    with tempfile.TemporaryDirectory(prefix="budgetnet-int8-") as folder, _quiet():
        source, target = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        source.write_bytes(model)
        try:
            quantization.quantize_static(
                source,
                target,
                _reader(samples, model, quantization.CalibrationDataReader),
                quant_format=quantization.QuantFormat.QDQ,
                per_channel=True,
                activation_type=quantization.QuantType.QUInt8,
                weight_type=quantization.QuantType.QInt8,
                nodes_to_exclude=_scaling(model),
            )
        except UserError:
            raise
        except Exception as error:  # the quantiser's errors have no common class
            raise UserError(
                f"ONNX Runtime cannot quantise this network ({reason(error)}); use precision=fp32"
            ) from None
        return target.read_bytes()


def _reader(samples: Iterable[Array], model: bytes, base: type[Any]) -> Any:
    """The batches under the name of the model's input, in the form that the quantiser asks for."""
    import onnx

    name = onnx.load_from_string(model).graph.input[0].name
    left = iter(samples)

    class Reader(base):  # type: ignore[misc]
        def get_next(self) -> dict[str, Array] | None:
            batch = next(left, None)
            return None if batch is None else {name: np.ascontiguousarray(batch, np.float32)}

    return Reader()


def _scaling(model: bytes) -> list[str]:
    """The nodes that scale the input: rounding them would blur every image before the first layer."""
    import onnx

    return [node.name for node in onnx.load_from_string(model).graph.node if node.name.startswith("scale.")]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser advises, on its root logger, to optimise the model first; batch norm is folded already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
