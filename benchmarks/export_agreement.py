"""Do exported networks say what their source says, and is the ONNX one as fast? 1,000 real images, every format.

A ResNet-20 of the fabric is trained for a few steps on the embedded images, so that its batch norms have real
statistics; then its logits on 1,000 test images are compared with those of each exported file, run in its own runtime.

    python -m benchmarks.export_agreement [--images 1000] [--repeats 300]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from benchmarks._common import interleave, pin_threads, write_result
from budgetnet import data
from budgetnet.export import FORMATS, Description, export_network, open_model
from budgetnet.export.formats import onnx_session
from budgetnet.network.extract import extract
from budgetnet.spaces import build

SPACES = {"resnet-fabric:width=3,channels=8": "resnet-20", "neural-fabric:width=4,scales=4,filters=16": "full"}
BAR = 1e-4
NEAR_TIE = 1e-3
"""Predictions may differ where the two largest logits of the source are closer than this."""
STEPS = 60


def trained(space: str, name: str, split: data.Split, shape: tuple[int, ...]) -> tuple[fx.GraphModule, Description]:
    """A network after a few steps of training, and its description."""
    torch.manual_seed(0)
    net = build(space, shape, 10)
    network = extract(net, net.architecture(name)).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
    for step in range(STEPS):
        rows = slice(64 * step % 5000, 64 * step % 5000 + 64)
        loss = nn.functional.cross_entropy(network(data.prepare(split.inputs[rows])), split.targets[rows])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    description = Description(space, net.architecture(name).to_json(), shape, tuple(map(str, range(10))))
    return network.eval(), description


def agreement(expected: Tensor, got: Tensor) -> dict[str, float]:
    """The largest difference of logits, and predictions that differ, near ties apart."""
    differ = expected.argmax(1) != got.argmax(1)
    best = expected.topk(2, 1).values
    tie = best[:, 0] - best[:, 1] < NEAR_TIE
    return {
        "largest_difference": float((expected - got).abs().max()),
        "predictions_differ": int(differ.sum()),
        "predictions_differ_beyond_ties": int((differ & ~tie).sum()),
    }


def speed(network: fx.GraphModule, file: Path, shape: tuple[int, ...], repeats: int) -> dict[str, float]:
    """Seconds of the ONNX file over seconds of eager torch, at batch 1 on one thread."""
    session = onnx_session(file.read_bytes(), file.name, threads=1)
    image = torch.rand(1, *shape)
    array = image.numpy()

    def eager() -> Tensor:
        with torch.inference_mode():
            outputs: Tensor = network(2 * image - 1)
            return outputs

    return interleave(lambda: session.run(None, {"input": array}), eager, repeats)


def main() -> None:
    """Exports to every format and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=300)
    arguments = parser.parse_args()
    pin_threads(1)
    dataset = data.load("embedded")
    test = dataset.test
    assert test is not None
    images = test.inputs[: arguments.images]
    rows: list[dict[str, Any]] = []
    for space, name in SPACES.items():
        network, description = trained(space, name, dataset.train, dataset.input_shape)
        with torch.inference_mode():
            expected = network(data.prepare(images))
        with tempfile.TemporaryDirectory() as folder:
            for kind, chosen in FORMATS.items():
                file = Path(folder) / f"network{chosen.suffix}"
                export_network(network, file, kind, description, images[:100].float())
                got = open_model(file)(images.float())
                rows.append({"space": space, "architecture": name, "format": kind, **agreement(expected, got)})
                if kind == "onnx":
                    rows[-1]["onnx_over_eager"] = speed(network, file, dataset.input_shape, arguments.repeats)
    passed = all(row["largest_difference"] <= BAR and not row["predictions_differ_beyond_ties"] for row in rows)
    faster = all(row["onnx_over_eager"]["ratio"] <= 1 for row in rows if "onnx_over_eager" in row)
    payload = {"bar": BAR, "seeds": [0], "n": arguments.images, "passed": passed and faster, "results": rows}
    write_result("export_agreement", payload)


if __name__ == "__main__":
    main()
