"""A budget on a device where no Python runs, but a bench tool does: a phone behind `adb shell`, a board behind ssh.

The class `Device` is all that is needed: it hands a file to the tool and gets the time of each run back. Here the tool
is a program on this machine, `device/bench.py`; for a phone, `times` would call `adb push` and `adb shell`. From the
command line the same class is named in the budget:

    budgetnet search --budget "latency(runtime=own_device:Device)<=60%"

    python examples/own_device.py [--out FOLDER]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import budgetnet
from budgetnet.costs import latency
from budgetnet.costs.latency.runtimes import BenchProgram

TOOL = Path(__file__).parent / "device" / "bench.py"
SHARE = 0.6


class Device(BenchProgram):
    """Times that the device's own tool takes."""

    samples = 5

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        command = [sys.executable, str(TOOL)]
        self.tool = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def times(self, exported: bytes, batch: int, threads: int, seconds: float) -> Sequence[float]:
        """Seconds of each run of an ONNX file."""
        assert self.tool.stdin is not None
        assert self.tool.stdout is not None
        file = Path(self.folder.name) / "network.onnx"
        file.write_bytes(exported)
        self.tool.stdin.write(f"{file}\t{batch}\t{threads}\t{seconds / 4}\n")
        self.tool.stdin.flush()
        return [float(word) / 1e3 for word in self.tool.stdout.readline().split()]

    def close(self) -> None:
        """Ends the tool."""
        self.tool.communicate()
        self.folder.cleanup()


def main() -> None:
    """A search under a share of the full network's time on the device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()))
    out = parser.parse_args().out
    dataset = budgetnet.data.load("embedded:size=14,limit=512")
    torch.manual_seed(0)
    net = budgetnet.spaces.resnet_fabric(width=2, channels=4, classes=10, input_shape=dataset.input_shape)
    device = Device()
    cost = latency(net, runtime=device)

    def on_device(net: budgetnet.SuperNetwork) -> budgetnet.costs.Cost:
        return cost

    on_device.unit = "s"
    full = cost.evidence(net.graph.full).value
    result = budgetnet.search(
        net,
        dataset.train,
        dataset.validation,
        budgets=[(on_device, SHARE * full)],
        out=out / "run",
        epochs=1,
        threads=1,
        quiet=True,
    )
    assert result.certificate is not None
    print(result.certificate.show())
    found = result.certificate.budgets[0].measured
    print(f"full network {1e3 * full:.4f} ms, found {1e3 * found:.4f} ms on the device")
    device.close()


if __name__ == "__main__":
    main()
