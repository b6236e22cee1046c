"""What runs a network for a measurement: a registry of small classes, to which users add their own devices.

A runtime exports an extracted network to what it runs, loads that, runs it, and compares its outputs with the source's.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from budgetnet.costs import accelerators
from budgetnet.costs.latency import timing
from budgetnet.costs.latency.meter.child import PROVIDER
from budgetnet.costs.latency.remote import Target
from budgetnet.costs.latency.runtime import Array, Runtime, Subject, check, reference_file, reference_network
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError, reason
from budgetnet.export.folding import fold
from budgetnet.export.formats import onnx_session
from budgetnet.export.pieces import Pieces, quiet

__all__ = [
    "RUNTIMES",
    "BenchProgram",
    "Compiled",
    "Eager",
    "ExecuTorch",
    "OnTarget",
    "OnnxRuntime",
    "OpenVino",
    "Runtime",
    "Subject",
    "check",
    "make",
    "reference_file",
    "reference_network",
    "user_errors",
]


class OnnxRuntime(Runtime):
    """ONNX Runtime on an execution provider.

    Args:
        provider: The provider's name, such as cuda or CUDAExecutionProvider; the processor if not given. Inputs and
            outputs cross over in every run.
    """

    name = "onnx"

    def __init__(self, provider: str = "") -> None:
        self.provider = provider

    def load(self, exported: Any, threads: int) -> Any:
        """A session, and the name of its input."""
        session = onnx_session(exported, "the exported network", threads, self.provider)
        return session, session.get_inputs()[0].name

    def run(self, loaded: Any, inputs: Any) -> Any:
        """The session's first output."""
        session, entry = loaded
        return session.run(None, inputs if isinstance(inputs, dict) else {entry: inputs})[0]

    def about(self) -> Mapping[str, Any]:
        """The provider, where it is not the processor, and what torch knows of its device."""
        known = accelerators.about("cuda") if "CUDA" in self.provider.upper() and torch.cuda.is_available() else {}
        return {"provider": self.provider, **known} if self.provider else {}


class Eager(Runtime):
    """The extracted network in torch, operation by operation.

    Args:
        device: The accelerator that runs it, such as cuda:1, whose events take the times; the processor if not given.
            Inputs are there before the clock starts.
    """

    name, form, onnx = "eager", "extracted", False

    def __init__(self, device: str = "") -> None:
        if device:
            accelerators.check_device(device)
        self.device = device

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """The network itself."""
        return network

    def load(self, exported: Any, threads: int) -> Any:
        """A copy, which lies elsewhere in memory, or on the accelerator."""
        return copy.deepcopy(exported).to(self.device or "cpu")

    def run(self, loaded: Any, inputs: Any) -> Any:
        """A forward pass; on an accelerator it is only queued, and reading the outputs waits for it."""
        with torch.inference_mode():
            return loaded(**inputs) if isinstance(inputs, dict) else loaded(inputs)

    def inputs(self, images: Any) -> Any:
        """A tensor, or several by name, where the network is."""
        if isinstance(images, dict):
            return {name: torch.from_numpy(value).to(self.device or "cpu") for name, value in images.items()}
        return torch.from_numpy(images).to(self.device or "cpu")

    def outputs(self, found: Any) -> Array:
        """See `Runtime`."""
        return super().outputs(found.cpu())

    def measure(self, network: Subject, reference: Subject, *, threads: int, seconds: float, rounds: int) -> Series:
        """See `Runtime`; an accelerator's events take the times of what it runs."""
        if not self.device:
            return super().measure(network, reference, threads=threads, seconds=seconds, rounds=rounds)
        fresh = self._fresh(network, threads), self._fresh(reference, threads)
        return timing.interleave(
            *fresh, seconds=seconds, rounds=rounds, clock=lambda run: accelerators.seconds(run, self.device)
        )

    def about(self) -> Mapping[str, Any]:
        """The accelerator, where there is one."""
        return accelerators.about(self.device) if self.device else {}


class Compiled(Eager):
    """The extracted network by `torch.compile`, which takes many seconds for each."""

    name, samples, fresh = "compile", 6, 1

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """A module that compiles itself on its first call."""
        with quiet():
            return torch.compile(copy.deepcopy(network).to(self.device or "cpu"), dynamic=False)

    def load(self, exported: Any, threads: int) -> Any:
        """The same module: a copy would be compiled again."""
        return exported

    def subject(self, exported: Any, images: Array) -> Subject:
        """Compiles now: that needs a C++ compiler, and is no part of any measurement."""
        made = super().subject(exported, images)
        try:
            with quiet():
                self.run(exported, made.inputs)
        except Exception as error:  # the compiler's errors have no common class
            raise UserError(
                f"torch.compile does not work here ({reason(error)}); install g++, or use runtime=onnx"
            ) from None
        return made


@functools.cache
def _openvino_core(make_core: Callable[[], Any]) -> Any:
    """OpenVINO's core, one for the life of the process.

    Its CPU plugin gives the thread that loads it another stack for signal handlers, and takes it away when it is
    unloaded. Of two plugins, or of one that another thread unloads, the thread is left with a stack that is no more:
    the next signal with a handler, such as that of a child process that ends, would kill the process.
    """
    return make_core()


class OpenVino(Runtime):
    """OpenVINO on the processor, in float32 (int8 files run as int8)."""

    name = "openvino"

    def load(self, exported: Any, threads: int) -> Any:
        """An inference request of the compiled ONNX file."""
        try:
            import openvino  # type: ignore[import-untyped]
        except ImportError:
            raise UserError("runtime=openvino needs the package openvino: pip install 'budgetnet[openvino]'") from None
        options = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        try:
            core = _openvino_core(openvino.Core)
            return core.compile_model(core.read_model(exported), "CPU", options).create_infer_request()
        except Exception as error:  # a front end's errors have no common class
            raise UserError(f"OpenVINO cannot run the exported network ({reason(error)}); use runtime=onnx") from None

    def run(self, loaded: Any, inputs: Any) -> Any:
        """The first output."""
        return loaded.infer([inputs], share_inputs=True, share_outputs=True)[0]


class ExecuTorch(Runtime):
    """ExecuTorch with its XNNPACK back end: `.pte` files, as apps on phones run them.

    A `.pte` file is made for one batch size, so it is made where the inputs are known. It takes inputs as the network
    was trained on them.
    """

    name, onnx = "executorch", False
    samples, fresh = 8, 1  # a file takes seconds to make

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """The network with batch norm folded; `subject` makes the file."""
        return fold(network)

    def lower(self, network: nn.Module, example: torch.Tensor) -> bytes:
        """The `.pte` file of a network.

        Args:
            network: A network in eval mode on the processor, such as `result.model`.
            example: Inputs of the batch size that the file is for.

        Returns:
            The bytes of the file.
        """
        with _executorch():
            from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
                XnnpackPartitioner,
            )
            from executorch.exir import to_edge_transform_and_lower
        try:
            with quiet(), torch.no_grad():
                program = torch.export.export(network, (example,))
                return bytes(
                    to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch().buffer
                )
        except Exception as error:  # the exporter's errors have no common class
            raise UserError(f"ExecuTorch cannot take this network ({reason(error)}); use runtime=onnx") from None

    def subject(self, exported: Any, images: Array) -> Subject:
        """The file for this batch size, and the inputs."""
        inputs = self.inputs(images)
        return Subject(self.lower(exported, inputs), inputs)

    def load(self, exported: Any, threads: int) -> Any:
        """The method of a `.pte` file, with its program, which must live as long."""
        with _executorch():
            from executorch.extension.pybindings import portable_lib
            from executorch.runtime import Runtime as Engine
        if portable_lib._threadpool_get_thread_count() != threads:
            portable_lib._unsafe_reset_threadpool(threads)  # safe here: nothing runs
        program = Engine.get().load_program(exported)
        return program, program.load_method("forward")

    def run(self, loaded: Any, inputs: Any) -> Any:
        """The first output."""
        return loaded[1].execute([inputs])[0]

    def inputs(self, images: Array) -> Any:
        """A tensor."""
        return torch.from_numpy(images)

    def compare(self, exported: Any, other: Runtime, source: Any, images: Array, threads: int = 1) -> float:
        """As every runtime does, by a file for as many images."""
        return super().compare(self.lower(exported, self.inputs(images)), other, source, images, threads)


@contextlib.contextmanager
def _executorch() -> Iterator[None]:
    """Imports of ExecuTorch, without what its parts log about each other."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with quiet():
            yield
    except ImportError:
        raise UserError(
            "runtime=executorch needs the package executorch: pip install 'budgetnet[executorch]'"
        ) from None
    finally:
        logging.disable(before)


class OnTarget(Runtime):
    """A device that runs `budgetnet meter`: its ONNX Runtime takes the times.

    Args:
        url: The meter's address, `http://host:port`.
        provider: The execution provider there.
    """

    def __init__(self, url: str, provider: str = "") -> None:
        self.target, self.provider = Target(url), provider or PROVIDER
        self.name = "onnx"
        self.machine: Mapping[str, Any] = {}

    def measure(self, network: Subject, reference: Subject, *, threads: int, seconds: float, rounds: int) -> Series:
        """Sends both files, and takes the samples that come back; the link is in none of the times."""
        series, self.machine = self.target.series(
            network.exported,
            reference.exported,
            batch=len(network.inputs),
            threads=threads,
            seconds=seconds,
            rounds=rounds,
            provider=self.provider,
        )
        return series

    def about(self) -> Mapping[str, Any]:
        """The address, and the machine behind it."""
        machine = dict(self.machine)
        return {"target": self.target.url, "processor": machine.get("processor", "unknown"), "machine": machine}


class BenchProgram(Runtime):
    """The base class for a device whose own program says how long runs took: a phone by `adb`, a board by a bench tool.

    A subclass defines `times`. The network and the reference take turns, a call each per round.
    """

    def times(self, exported: Any, batch: int, threads: int, seconds: float) -> Sequence[float]:
        """Seconds of each of many runs on the device, after warm-up.

        Args:
            exported: What `export` made: the bytes of an ONNX file, unless it is overridden.
            batch: Inputs at a time.
            threads: Threads on the device.
            seconds: How long to run, about.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define times")

    def measure(self, network: Subject, reference: Subject, *, threads: int, seconds: float, rounds: int) -> Series:
        """Pairs of a run of the network and a run of the reference, in the order in which the device gave them."""
        pairs: list[tuple[float, float]] = []
        while rounds > 0 or len(pairs) < timing.PAIRS[0]:
            before = len(pairs)
            both = [self.times(part.exported, len(part.inputs), threads, seconds / 2) for part in (network, reference)]
            pairs += zip(*([float(value) for value in times] for times in both), strict=False)
            if len(pairs) == before or not all(0 < time < float("inf") for pair in pairs for time in pair):
                raise UserError(
                    f"the runtime {self.name} gave no times above zero for a network; correct its `times` function"
                )
            rounds -= 1
        times = np.array(pairs)
        calm = np.zeros(len(times), bool)
        return Series(times[:, 0], times[:, 1], calm, times[:, 0])


RUNTIMES: dict[str, type[Runtime]] = {
    "onnx": OnnxRuntime,
    "eager": Eager,
    "compile": Compiled,
    "openvino": OpenVino,
    "executorch": ExecuTorch,
}
"""The built-in runtimes by the name that a budget gives."""


def make(runtime: str | Runtime, provider: str = "") -> Runtime:
    """A runtime by its name, or a user's own as it is.

    Args:
        runtime: A name of `RUNTIMES`, or a runtime.
        provider: The execution provider of ONNX Runtime, or the accelerator for eager and compiled torch.
    """
    if provider and runtime not in ("onnx", "eager", "compile"):
        raise UserError(f"provider={provider} is for runtime=onnx, eager or compile; leave it out, or use one of these")
    if isinstance(runtime, Runtime):
        return runtime
    if runtime not in RUNTIMES:
        raise UserError(
            f"runtime {runtime!r} does not exist; use {', '.join(RUNTIMES)}, or your own as package.module:name"
        )
    made: Any = RUNTIMES[runtime]
    return made(provider) if provider else made()  # type: ignore[no-any-return]


@contextlib.contextmanager
def user_errors(runtime: Runtime) -> Iterator[None]:
    """What a user's own runtime raises becomes a sentence."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except Exception as error:
        if type(runtime) in RUNTIMES.values():
            raise
        raise UserError(
            f"the runtime {runtime.name} raised {type(error).__name__}: {reason(error)}; correct it"
        ) from error
