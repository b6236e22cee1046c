"""Do budgets hold on other runtimes than ONNX Runtime: OpenVINO, and ExecuTorch's `.pte` files?

For each, a search under 60 % of the full network's time on that runtime must end certified, and hold when measured
again in a fresh process. Then the trained network's outputs on 1,000 test images are compared with eager torch's. A
finished search is kept, and the same command goes on after it. ExecuTorch takes seconds to make a file, so that its
search takes some minutes.

    pip install 'budgetnet[openvino,executorch]'
    python -m benchmarks.runtimes [--runs runs/runtimes] [--runtimes openvino,executorch]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import budgetnet
from benchmarks._common import pin_threads, write_result
from budgetnet import data
from budgetnet.costs.latency import runtimes
from budgetnet.costs.latency.cost import DIFFERENCE

SPACE, DATA, SEED, SHARE, IMAGES = "resnet-fabric:width=2,channels=8", "embedded:size=14", 0, "60%", 1000
PIECE = 100
"""Images at a time: an ExecuTorch file is made for one batch size."""


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """budgetnet in a process of its own, on one thread."""
    return subprocess.run(
        [sys.executable, "-m", "budgetnet", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def searched(name: str, run: Path) -> dict[str, Any]:
    """A search under a share of the full network's time on a runtime, certified, and certified in a fresh process."""
    done_before = run.with_suffix(".json")
    if done_before.exists():
        found: dict[str, Any] = json.loads(done_before.read_text())
        return found
    shutil.rmtree(run, ignore_errors=True)
    begin = time.monotonic()
    words = ["--space", SPACE, "--data", DATA, "--epochs", "2", "--seed", str(SEED), "--threads", "1", "--quiet"]
    done = command("search", *words, "--budget", f"latency(runtime={name})<={SHARE}", "--out", str(run))
    row: dict[str, Any] = {"exit_code": done.returncode, "seconds": time.monotonic() - begin}
    if not (run / "certificate.json").exists():
        return {**row, "said": done.stderr.strip()[-300:], "met": False}
    first = json.loads((run / "certificate.json").read_text())["budgets"][0]
    again = json.loads(command("certify", str(run), "--json").stdout)["budgets"][0]
    kept = ("maximum", "measured", "upper_bound", "holds")
    row |= {
        "certificate": {key: first[key] for key in kept} | {"samples": first["how"]["samples"]},
        "again": {key: again[key] for key in kept},
        "met": bool(first["holds"] and again["holds"]),
    }
    done_before.write_text(json.dumps(row))
    return row


def agreement(name: str, run: Path) -> dict[str, Any]:
    """How far outputs of the trained network on the runtime are from eager torch's, on test images."""
    found = budgetnet.load(run)
    dataset = data.load(DATA)
    assert dataset.test is not None
    pixels = dataset.test.inputs[:IMAGES].float()
    runtime, eager = runtimes.make(name), found.network.eval()
    if runtime.onnx:
        exported = found.export(run / "network.onnx", force=True).path.read_bytes()
    else:
        exported = runtime.export(eager, dataset.input_shape)
    rows, expected = [], []
    loaded: Any = None
    for piece in pixels.split(PIECE):
        scaled = piece / 127.5 - 1
        images = (piece if runtime.onnx else scaled).contiguous().numpy()  # an ONNX file scales pixels itself
        if loaded is None:
            loaded = runtime.load(runtime.subject(exported, images).exported, 1)
        rows.append(np.array(runtime.outputs(runtime.run(loaded, runtime.inputs(images)))))
        with torch.inference_mode():
            expected.append(eager(scaled).numpy())
    outputs, source = np.concatenate(rows), np.concatenate(expected)
    difference = float(np.abs(outputs - source).max() / max(1.0, float(np.abs(source).max())))
    same = int((outputs.argmax(1) == source.argmax(1)).sum())
    return {
        "images": len(outputs),
        "largest_difference": difference,
        "bar": DIFFERENCE["fp32"],
        "same_class": same,
        "met": difference <= DIFFERENCE["fp32"] and same == len(outputs),
    }


def main() -> None:
    """All runtimes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/runtimes"))
    parser.add_argument("--runtimes", default="openvino,executorch")
    arguments = parser.parse_args()
    pin_threads()
    rows: dict[str, Any] = {}
    for name in arguments.runtimes.split(","):
        run = arguments.runs / name
        search = searched(name, run)
        rows[name] = {"version": metadata.version(name), "search": search}
        if (run / "certificate.json").exists():
            rows[name]["agreement"] = agreement(name, run)
    met = all(row["search"]["met"] and row.get("agreement", {}).get("met") for row in rows.values())
    about = {"space": SPACE, "data": DATA, "seed": SEED, "budget": f"latency<={SHARE}", "n": len(rows)}
    write_result("runtimes", {**about, "met": met, "runtimes": rows})


if __name__ == "__main__":
    main()
