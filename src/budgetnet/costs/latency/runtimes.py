"""What runs a network for a measurement: a registry of small classes, to which users add their own devices.

A runtime exports an extracted network to what it runs, loads that, runs it, and compares its outputs with the source's.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

from budgetnet.costs.latency import timing
from budgetnet.costs.latency.meter.child import PROVIDER
from budgetnet.costs.latency.remote import Target
from budgetnet.costs.latency.samples import random_images
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError, reason
from budgetnet.export.folding import fold
from budgetnet.export.formats import onnx_session
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import Pieces, quiet
from budgetnet.network.extract import extract
from budgetnet.spaces import resnet_fabric

Array = np.ndarray[Any, np.dtype[np.float32]]

REFERENCE_SHAPE = (3, 32, 32)
MOST_EXAMPLES = 2**16
MOST_THREADS = 1024


class Subject(NamedTuple):
    """What is measured: something that a runtime can load, and the inputs to run it on."""

    exported: Any
    inputs: Any


class Runtime:
    """How networks are exported, loaded, run and compared; the base class of a user's own.

    A subclass defines `load` and `run`, and `export` if it does not run ONNX files. A device whose own program takes
    the times defines `measure` instead: see `BenchProgram`.

    Attributes:
        name: What certificates call it.
        form: `exported` if it runs a file that is handed over, `extracted` if it runs the module itself.
        onnx: Whether what `export` makes is an ONNX file, so that the file that is handed over can be measured.
        samples: How many networks are measured for the first fit of the predictor.
        fresh: How many networks are measured at each refresh.
    """

    name = "own"
    form = "exported"
    onnx = True
    samples = 24
    fresh = 3

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """What the runtime loads.

        Args:
            network: An extracted network, in eval mode on the processor.
            input_shape: The shape of one input.
            pieces: Exported modules of the same super network, which make the next export quick.

        Returns:
            By default the bytes of an ONNX file that takes inputs in [0, 1].
        """
        return to_onnx(fold(network), input_shape, scaled=True, pieces=pieces).SerializeToString()

    def load(self, exported: Any, threads: int) -> Any:
        """A fresh instance that is ready to run on so many threads."""
        raise NotImplementedError(f"{type(self).__name__} does not define load")

    def run(self, loaded: Any, inputs: Any) -> Any:
        """Runs a loaded network on inputs, and returns when the outputs are there."""
        raise NotImplementedError(f"{type(self).__name__} does not define run")

    def inputs(self, images: Array) -> Any:
        """A batch in the form that `run` takes."""
        return images

    def outputs(self, found: Any) -> Array:
        """What `run` returned, as an array."""
        return np.asarray(found, np.float32)

    def subject(self, exported: Any, images: Array) -> Subject:
        """What is to be measured; work that comes before any measurement is done here."""
        return Subject(exported, self.inputs(images))

    def reference(self) -> Subject:
        """The fixed network that all others are compared with, as this runtime runs it."""
        plain = type(self).export is Runtime.export
        exported = reference_file() if plain else self.export(reference_network(), REFERENCE_SHAPE)
        return self.subject(exported, random_images(1, REFERENCE_SHAPE))

    def measure(self, network: Subject, reference: Subject, *, threads: int, seconds: float, rounds: int) -> Series:
        """Times of a network and of the reference, run in turns.

        Args:
            network: What to measure.
            reference: The fixed network that it is compared with.
            threads: Threads of the runtime.
            seconds: How long to measure, about.
            rounds: In how many rounds, each with fresh instances.
        """
        with timing.torch_threads(threads), torch.random.fork_rng(devices=[]):
            return timing.interleave(
                self._fresh(network, threads), self._fresh(reference, threads), seconds=seconds, rounds=rounds
            )

    def compare(self, exported: Any, other: Runtime, source: Any, images: Array, threads: int = 1) -> float:
        """How far outputs here are from those of another runtime.

        Args:
            exported: What this runtime loads.
            other: The runtime to compare with.
            source: What that one loads.
            images: Inputs.
            threads: Threads of both.

        Returns:
            The largest difference, relative to the other's largest output if that is above 1.
        """
        found, expected = (
            runtime.outputs(runtime.run(runtime.load(loaded, threads), runtime.inputs(images)))
            for runtime, loaded in ((self, exported), (other, source))
        )
        return float(np.abs(found - expected).max() / max(1.0, float(np.abs(expected).max())))

    def about(self) -> Mapping[str, Any]:
        """What a certificate says about the runtime, besides its name."""
        return {}

    def _fresh(self, subject: Subject, threads: int) -> Callable[[], timing.Run]:
        def fresh() -> timing.Run:
            loaded = self.load(subject.exported, threads)
            return lambda: self.run(loaded, subject.inputs)

        return fresh


class OnnxRuntime(Runtime):
    """ONNX Runtime on an execution provider.

    Args:
        provider: The provider's name, such as CUDAExecutionProvider; the processor if not given.
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
        """The provider, where it is not the processor."""
        return {"provider": self.provider} if self.provider else {}


class Eager(Runtime):
    """The extracted network in torch, operation by operation."""

    name, form, onnx = "eager", "extracted", False

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """The network itself."""
        return network

    def load(self, exported: Any, threads: int) -> Any:
        """A copy, which lies elsewhere in memory."""
        return copy.deepcopy(exported)

    def run(self, loaded: Any, inputs: Any) -> Any:
        """A forward pass."""
        with torch.inference_mode():
            return loaded(**inputs) if isinstance(inputs, dict) else loaded(inputs)

    def inputs(self, images: Any) -> Any:
        """A tensor, or several by name."""
        if isinstance(images, dict):
            return {name: torch.from_numpy(value) for name, value in images.items()}
        return torch.from_numpy(images)


class Compiled(Eager):
    """The extracted network by `torch.compile`, which takes many seconds for each."""

    name, samples, fresh = "compile", 6, 1

    def export(self, network: fx.GraphModule, input_shape: Sequence[int], pieces: Pieces | None = None) -> Any:
        """A module that compiles itself on its first call."""
        with quiet():
            return torch.compile(copy.deepcopy(network), dynamic=False)

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
            core = openvino.Core()
            return core.compile_model(core.read_model(exported), "CPU", options).create_infer_request()
        except Exception as error:  # a front end's errors have no common class
            raise UserError(f"OpenVINO cannot run the exported network ({reason(error)}); use runtime=onnx") from None

    def run(self, loaded: Any, inputs: Any) -> Any:
        """The first output."""
        return loaded.infer([inputs], share_inputs=True, share_outputs=True)[0]


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
}
"""The built-in runtimes by the name that a budget gives."""


def make(runtime: str | Runtime, provider: str = "") -> Runtime:
    """A runtime by its name, or a user's own as it is.

    Args:
        runtime: A name of `RUNTIMES`, or a runtime.
        provider: The execution provider, for ONNX Runtime.
    """
    if provider and runtime != "onnx":
        raise UserError(f"provider={provider} is for ONNX Runtime only; leave it out, or use runtime=onnx")
    if isinstance(runtime, Runtime):
        return runtime
    if runtime not in RUNTIMES:
        raise UserError(
            f"runtime {runtime!r} does not exist; use {', '.join(RUNTIMES)}, or your own as package.module:name"
        )
    return OnnxRuntime(provider) if runtime == "onnx" else RUNTIMES[runtime]()


def check(batch: int, threads: int) -> None:
    """Refuses what no runtime can do, before any work."""
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


@cache
def reference_file() -> bytes:
    """The reference network as an ONNX file, which takes seconds to make."""
    return Runtime().export(reference_network(), REFERENCE_SHAPE)  # type: ignore[no-any-return]


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
