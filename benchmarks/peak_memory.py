"""Is peak memory by analysis what a real run allocates? Random sub-networks of both spaces, at batch 1 and 8.

python -m benchmarks.peak_memory [--networks 20]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks._common import pin_threads, summarise, write_result
from budgetnet.costs.footprints import run_peak
from budgetnet.costs.latency.predictor import random_architectures
from budgetnet.costs.memory import peak_memory
from budgetnet.network.extract import extract
from budgetnet.spaces import build

SPACES = {
    "resnet-fabric:width=3,channels=16": (3, 32, 32),
    "neural-fabric:width=4,scales=5,filters=32": (3, 32, 32),
}
BATCHES = (1, 8)
BAR = 0.10
SEED = 0


def main() -> None:
    """Compares, for each sub-network, the analysis with the allocations of one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=20)
    arguments = parser.parse_args()
    pin_threads(1)
    rows: list[dict[str, Any]] = []
    for space, shape in SPACES.items():
        net = build(space, shape, 10).eval()
        for batch in BATCHES:
            cost = peak_memory(net, batch)
            for architecture in random_architectures(net.graph, arguments.networks, SEED):
                network = extract(net, architecture).eval()
                real = run_peak(network, torch.zeros(batch, *shape))
                rows.append(
                    {
                        "space": space,
                        "batch": batch,
                        "edges": len(architecture),
                        "analysis_bytes": cost(architecture),
                        "measured_bytes": real,
                        "error": abs(cost(architecture) / real - 1),
                    }
                )
    errors = [row["error"] for row in rows]
    payload = {
        "bar": BAR,
        "seeds": [SEED],
        "passed": max(errors) <= BAR,
        "error": summarise(errors),
        "networks": rows,
    }
    write_result("peak_memory", payload)


if __name__ == "__main__":
    main()
