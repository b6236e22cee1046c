"""The base class of runtimes, what they measure, and the fixed reference network that all others are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx

from budgetnet.costs.latency import timing
from budgetnet.costs.latency.samples import random_images
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError
from budgetnet.export.folding import fold
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import Pieces
from budgetnet.network.extract import extract
from budgetnet.spaces import resnet_fabric

Array = np.ndarray[Any, np.dtype[np.float32]]

REFERENCE_SHAPE = (3, 32, 32)
"""The input of the reference network: that of CIFAR, where one run takes about a millisecond."""
MOST_EXAMPLES = 2**16
"""The largest batch: beyond it a typing error is likelier than a wish, and inputs would fill the memory."""
MOST_THREADS = 1024
"""More than any machine that one process runs on has cores."""


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
        """A fresh instance that is ready to run on so many threads.

        Args:
            exported: What `export` made.
            threads: Threads to run on.

        Returns:
            Whatever `run` takes.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define load")

    def run(self, loaded: Any, inputs: Any) -> Any:
        """Runs a loaded network on inputs, and returns when the outputs are there.

        Args:
            loaded: What `load` returned.
            inputs: What `inputs` returned.

        Returns:
            The outputs, in the runtime's own form.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define run")

    def inputs(self, images: Array) -> Any:
        """A batch in the form that `run` takes.

        Args:
            images: Inputs, batch first.

        Returns:
            The same, as `run` takes them.
        """
        return images

    def outputs(self, found: Any) -> Array:
        """What `run` returned, as an array.

        Args:
            found: The outputs of one run.

        Returns:
            Numbers, batch first.
        """
        return np.asarray(found, np.float32)

    def subject(self, exported: Any, images: Array) -> Subject:
        """What is to be measured; work that comes before any measurement is done here.

        Args:
            exported: What `export` made.
            images: Inputs, batch first.

        Returns:
            What `measure` takes.
        """
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


def check(batch: int, threads: int) -> None:
    """Refuses what no runtime can do, before any work.

    Args:
        batch: Inputs at a time.
        threads: Threads of the runtime.
    """
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
