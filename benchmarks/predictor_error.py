"""How well does the predictor know latencies that it has not seen? The mean absolute error on held-out sub-networks.

For both fabrics, a converted ResNet and a converted ViT, and for ONNX Runtime and eager torch: the predictor is
calibrated as in a search, then random sub-networks of every density, none of which it was fitted to, are predicted and
measured, as ratios to the reference.

    python -m benchmarks.predictor_error [--networks 16] [--runtimes onnx,eager]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from benchmarks._common import pin_threads, summarise, write_result
from benchmarks._resnet import HandResNet
from benchmarks.own_model_speed import vit
from budgetnet import from_model
from budgetnet.costs.latency import timing
from budgetnet.costs.latency.cost import CANDIDATE
from budgetnet.costs.latency.limits import latency
from budgetnet.costs.latency.predictor import random_architectures
from budgetnet.costs.latency.samples import key_of
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import build

FABRICS = ("resnet-fabric:width=3,channels=8", "neural-fabric:width=4,scales=4,filters=16")
NETWORKS: dict[str, Callable[[], SuperNetwork]] = {
    **{space: partial(build, space, (1, 28, 28), 10) for space in FABRICS},
    "converted ResNet-20": lambda: from_model(HandResNet(16), torch.zeros(2, 3, 32, 32)),
    "converted ViT": lambda: from_model(vit(), torch.zeros(2, 3, 32, 32)),
}
BAR = 0.10
SEED = 1000
"""Of the held-out networks; the calibration uses seed 0."""


def held_out_error(name: str, runtime: str, count: int) -> dict[str, object]:
    """Predicted against measured ratios for one super network and runtime."""
    torch.manual_seed(0)
    net = NETWORKS[name]().eval()
    cost = latency(net, runtime=runtime)
    begin = time.perf_counter()
    seconds_full = cost(net.graph.full)
    calibration = time.perf_counter() - begin
    known = set(cost.state_dict()["ratios"])
    sampled = {key_of(a): a for a in random_architectures(net.graph, 2 * count, SEED)}
    unseen = [a for key, a in sampled.items() if key not in known]
    chosen = [unseen[i] for i in np.linspace(0, len(unseen) - 1, count).astype(int)]
    predicted = cost.predict(torch.stack([a.gates() for a in chosen])) / cost.state_dict()["scale"]
    measured = np.array([float(timing.ratio(cost.series(a, CANDIDATE))) for a in chosen])
    errors = np.abs(predicted / measured - 1)
    return {
        "space": name,
        "runtime": runtime,
        "held_out": summarise(errors.tolist()),
        "below_bar": bool(errors.mean() < BAR),
        "calibration_seconds": round(calibration, 1),
        "full_network_ms": seconds_full * 1e3,
        "networks": [
            {"edges": len(a), "predicted": round(float(p), 4), "measured": round(float(m), 4)}
            for a, p, m in zip(chosen, predicted, measured, strict=True)
        ],
    }


def main() -> None:
    """Measures every combination and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=16)
    parser.add_argument("--runtimes", default="onnx,eager")
    arguments = parser.parse_args()
    pin_threads(1)
    rows = [
        held_out_error(name, runtime, arguments.networks)
        for name in NETWORKS
        for runtime in arguments.runtimes.split(",")
    ]
    payload = {"bar": BAR, "seeds": [0, SEED], "passed": all(row["below_bar"] for row in rows), "results": rows}
    write_result("predictor_error", payload)


if __name__ == "__main__":
    main()
