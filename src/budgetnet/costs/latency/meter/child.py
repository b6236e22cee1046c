"""One measurement in a process of its own, which has limits and can be killed: request on stdin, answer on stdout.

A request is a line of JSON and then the bytes of the reference network and of the network. The process puts limits on
itself before it reads anything, and can write no file.
"""

from __future__ import annotations

import ctypes
import gc
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from budgetnet.costs.latency.meter import machine
from budgetnet.costs.latency.meter.screening import Refused, screen

HEADER = 4096
"""The longest first line of a request, in bytes."""
MOST = {"batch": 1024, "threads": 256, "seconds": 20.0, "rounds": 32}
"""The most that a request may ask for."""
WHAT = ("latency", "memory")
"""What can be measured."""
PROVIDER = "CPUExecutionProvider"
"""ONNX Runtime's execution provider unless another is asked for: the processor, which every device has."""
MEMORY_RUNS = 3
"""Runs of a network before its memory is read: a runtime may allocate more in the second."""


@dataclass(frozen=True)
class Request:
    """What to measure: how the network is run, for how long, and how many bytes of the body are the reference."""

    what: str
    batch: int
    threads: int
    seconds: float
    rounds: int
    provider: str
    reference: int
    """The bytes of the reference network, which come first."""

    def to_bytes(self) -> bytes:
        """The first line of a request."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def from_bytes(line: bytes) -> Request:
        """The first line of a request, checked: every number positive and within what a meter does.

        Args:
            line: The line, from anybody.

        Returns:
            The request.
        """
        try:
            values = json.loads(line)
            request = Request(**values)
        except (ValueError, TypeError, RecursionError):
            raise Refused("the first line of the request is not what this version of the meter takes") from None
        kinds = {"what": str, "provider": str, "seconds": (int, float)}
        if any(type(values[f.name]) not in _classes(kinds.get(f.name, int)) for f in fields(Request)):
            raise Refused("the first line of the request has a value of the wrong kind")
        if request.what not in WHAT:
            raise Refused(f"the meter measures {' and '.join(WHAT)}, nothing else")
        for name, most in MOST.items():
            if not 0 < getattr(request, name) <= most:
                raise Refused(f"{name} must be above 0 and at most {most:g}")
        if request.reference < 1:
            raise Refused("the request has no reference network")
        return request


def _classes(kind: Any) -> tuple[type, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def read(body: io.BufferedIOBase) -> tuple[Request, bytes, bytes]:
    """The parts of a request: what to do, the reference network, the network.

    Args:
        body: The whole request.

    Returns:
        The request, the bytes of the reference and those of the network.
    """
    line = body.readline(HEADER)
    request = Request.from_bytes(line)
    rest = body.read()
    reference, network = rest[: request.reference], rest[request.reference :]
    if not network:
        raise Refused("the request is shorter than it says")
    return request, reference, network


def measure(request: Request, reference: bytes, network: bytes) -> dict[str, Any]:
    """The answer to a request: samples of times, or of memory; and the machine.

    Args:
        request: What to do.
        reference: The bytes of the reference network.
        network: The bytes of the network.

    Returns:
        Plain values for JSON.
    """
    for model in (reference, network):
        screen(model)
    function = _latency if request.what == "latency" else _memory
    return {**function(request, reference, network), "machine": machine.describe()}


def _latency(request: Request, reference: bytes, network: bytes) -> dict[str, Any]:
    from budgetnet.costs.latency import timing

    series = timing.interleave(
        lambda: _ready(network, request, request.batch),
        lambda: _ready(reference, request, 1),
        seconds=request.seconds,
        rounds=request.rounds,
    )
    return {field.name: getattr(series, field.name).tolist() for field in fields(series)}


def _memory(request: Request, reference: bytes, network: bytes) -> dict[str, Any]:
    """Resident bytes that loading and running the network adds to a process that has run another network before."""
    _ready(reference, request, 1)()
    before = _settled()
    run = _ready(network, request, request.batch)
    for _ in range(MEMORY_RUNS):
        run()
    return {"memory": max(0, _peak() - before)}


def _ready(model: bytes, request: Request, batch: int) -> Callable[[], object]:
    """A fresh session on a fixed random input."""
    import numpy as np
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads, options.inter_op_num_threads = request.threads, 1
    options.enable_cpu_mem_arena = request.what != "memory"
    if request.provider not in onnxruntime.get_available_providers():
        raise Refused("the meter's ONNX Runtime does not have the execution provider that was asked for")
    try:
        session = onnxruntime.InferenceSession(model, options, providers=[request.provider])
    except Exception:  # the runtime has a class of its own for every way in which a model can be wrong
        raise Refused("ONNX Runtime on the meter's machine cannot load this network") from None
    random, inputs = np.random.default_rng(0), {}
    for entry in session.get_inputs():
        shape = [batch, *entry.shape[1:]]
        if entry.type not in ("tensor(float)", "tensor(int64)") or not all(isinstance(size, int) for size in shape):
            raise Refused("the meter takes networks of float32 or int64 inputs with a free first dimension only")
        values = random.random(shape, np.float32)
        inputs[entry.name] = values if entry.type == "tensor(float)" else np.zeros(shape, np.int64)
    return lambda: session.run(None, inputs)


def _settled() -> int:
    """The resident bytes now, after freed memory went back to the system; the peak is counted from here."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):
        return _peak()
    return _status("VmRSS")


def _peak() -> int:
    try:
        return _status("VmHWM")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def limit(seconds: int, memory: int) -> None:
    """Limits on this process: processor seconds, bytes of memory, and no file longer than nothing.

    Args:
        seconds: Seconds of the processor.
        memory: Bytes of memory.
    """
    import resource

    for name, most in (
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_DATA" if sys.platform == "linux" else "RLIMIT_AS", memory),
        ("RLIMIT_FSIZE", 0),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", 128),
    ):
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(number, (bound, bound))


def main() -> None:
    """Arguments: processor seconds and bytes of memory. Nothing but the answer reaches standard output."""
    limit(*map(int, sys.argv[1:3]))
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        with open(0, "rb") as body:
            found = measure(*read(body))
    except Refused as refusal:
        found = {"refused": str(refusal)}
    except MemoryError:
        found = {"refused": "the network needs more memory than the meter allows"}
    except Exception:  # what a runtime says about a model may hold parts of it
        found = {"refused": "the network could not be run on the meter's machine"}
    answer.write(json.dumps(found).encode())
    answer.close()


if __name__ == "__main__":
    main()
