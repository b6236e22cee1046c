"""`latency` and `latency_p95`, as budgets name them."""

from __future__ import annotations

from budgetnet.costs.latency import runtimes
from budgetnet.costs.latency.cost import Latency
from budgetnet.costs.latency.runtimes import Runtime
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork


def latency(
    net: SuperNetwork,
    batch: int = 1,
    threads: int = 1,
    runtime: str | Runtime = "onnx",
    target: str = "",
    precision: str = "fp32",
    provider: str = "",
) -> Latency:
    """Seconds of one run on a quiet machine: the median ratio to an interleaved reference times its quiet time.

    Args:
        net: The super network.
        batch: Inputs at a time.
        threads: Threads of the runtime.
        runtime: onnx, eager, compile, openvino, executorch, or a runtime of one's own.
        target: The address of a meter, `http://host:8700`, if a device is to measure.
        precision: fp32, or int8 for the quantised file.
        provider: cuda or another execution provider of ONNX Runtime; the accelerator for eager and compile.

    Returns:
        The cost: an architecture in, seconds out.
    """
    return Latency(net, _runtime(runtime, target, provider), batch, threads, False, precision)


def latency_p95(
    net: SuperNetwork,
    batch: int = 1,
    threads: int = 1,
    runtime: str | Runtime = "onnx",
    target: str = "",
    precision: str = "fp32",
    provider: str = "",
) -> Latency:
    """The 95th percentile of the seconds of one run, on the machine as busy as it is.

    Args:
        net: The super network.
        batch: Inputs at a time.
        threads: Threads of the runtime.
        runtime: onnx, eager, compile, openvino, executorch, or a runtime of one's own.
        target: The address of a meter, `http://host:8700`, if a device is to measure.
        precision: fp32, or int8 for the quantised file.
        provider: cuda or another execution provider of ONNX Runtime; the accelerator for eager and compile.

    Returns:
        The cost: an architecture in, seconds out.
    """
    return Latency(net, _runtime(runtime, target, provider), batch, threads, True, precision)


def _runtime(runtime: str | Runtime, target: str, provider: str) -> Runtime:
    if not target:
        return runtimes.make(runtime, provider)
    if runtime != "onnx":
        raise UserError(f"a target runs ONNX Runtime, not {runtime}; leave out runtime={runtime}")
    return runtimes.OnTarget(target, provider)
