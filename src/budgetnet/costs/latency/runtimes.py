"""What runs a network for a measurement: ONNX Runtime, eager torch, `torch.compile`; and the reference network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import fx

from budgetnet.costs.latency.timing import Run
from budgetnet.errors import UserError, reason
from budgetnet.export.folding import fold
from budgetnet.export.formats import onnx_session
from budgetnet.export.onnx_graph import INPUT, to_onnx
from budgetnet.export.pieces import Pieces, quiet
from budgetnet.network.extract import extract
from budgetnet.spaces import resnet_fabric

RUNTIMES = ("onnx", "eager", "compile")
Prepare = Callable[[], Run]
"""Makes a fresh instance of a network that is ready to run."""

REFERENCE_SHAPE = (3, 32, 32)


MOST_EXAMPLES = 2**16
MOST_THREADS = 1024


def check(runtime: str, batch: int, threads: int) -> None:
    """Refuses what no runtime can do, before any work."""
    if runtime not in RUNTIMES:
        raise UserError(f"runtime {runtime!r} does not exist; use {', '.join(RUNTIMES)}")
    for name, value in (("batch", batch), ("threads", threads)):
        if value < 1:
            raise UserError(f"{name}={value} cannot be measured; use 1 or more")
    if batch > MOST_EXAMPLES or threads > MOST_THREADS:
        raise UserError(
            f"batch={batch} and threads={threads} are too many; use at most {MOST_EXAMPLES} examples and "
            f"{MOST_THREADS} threads"
        )


def reference_network() -> fx.GraphModule:
    """ResNet-8 with 16 channels, always with the same numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = resnet_fabric(width=1, channels=16, groups=3, classes=10, input_shape=REFERENCE_SHAPE)
    return extract(net, net.architecture("resnet-8")).eval()


def prepare(
    runtime: str,
    network: fx.GraphModule,
    input_shape: Sequence[int],
    *,
    batch: int = 1,
    threads: int = 1,
    pieces: Pieces | None = None,
) -> Prepare:
    """How to run an extracted network, on a fixed random input; the exported form of it for ONNX Runtime."""
    if runtime == "onnx":
        model = to_onnx(fold(network), input_shape, scaled=True, pieces=pieces)
        return prepare_onnx(model.SerializeToString(), input_shape, batch=batch, threads=threads)
    images = _images(batch, input_shape)
    if runtime == "eager":
        return lambda: _module_run(copy.deepcopy(network), images)
    compiled = _compiled(network, images)
    return lambda: compiled


def prepare_onnx(model: bytes, input_shape: Sequence[int], *, batch: int = 1, threads: int = 1) -> Prepare:
    """How to run the bytes of an ONNX model."""
    images = _images(batch, input_shape).numpy()

    def fresh() -> Run:
        session = onnx_session(model, "the exported network", threads)
        entry = session.get_inputs()[0].name if session.get_inputs() else INPUT
        return lambda: session.run(None, {entry: images})

    return fresh


def _images(batch: int, input_shape: Sequence[int]) -> torch.Tensor:
    return torch.rand((batch, *input_shape), generator=torch.Generator().manual_seed(0))


def _module_run(module: Callable[..., object], images: torch.Tensor) -> Run:
    def run() -> object:
        with torch.inference_mode():
            return module(images)

    return run


def _compiled(network: fx.GraphModule, images: torch.Tensor) -> Run:
    """Compiles now: that takes seconds, needs a C++ compiler, and is no part of any measurement."""
    run = _module_run(cast(Callable[..., object], torch.compile(copy.deepcopy(network), dynamic=False)), images)
    try:
        with quiet():
            run()
    except Exception as error:  # the compiler's errors have no common class
        raise UserError(
            f"torch.compile does not work here ({reason(error)}); install g++, or use runtime=onnx"
        ) from None
    return run
