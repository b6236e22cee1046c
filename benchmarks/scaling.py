"""What do two processes bring? Throughput, results, precision, and what a step takes on many GPUs, on paper.

`throughput`: two ranks (gloo, one thread and one core each) train in turns with one rank alone, block by block in one
run; steps of the search phase and of the finish phase, the same batch, of 256 and of 128 examples. `seeds`: whole
searches by one and by two processes with the same seeds. `precision`: whole searches in bf16 with the same seeds.
`paper`: the model of docs/scaling.md.

    python -m benchmarks.scaling [--parts throughput,seeds,precision,paper] [--blocks 8] [--steps 4] [--seeds 0,1,2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import torch

from benchmarks import _scaling_model as model
from benchmarks._common import RESULTS, ROOT, answer, numbers, paired, write_answers
from budgetnet.costs import macs, params
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import Config
from budgetnet.runs.job import Job, check_job, make_runner, make_trainer, prepare
from budgetnet.spaces import resnet_fabric
from budgetnet.strategies.phases import Finish, Search
from budgetnet.training.device import Device
from budgetnet.training.fits import Course
from budgetnet.training.processes import Processes

BAR, POINTS = 1.7, 0.01
BATCHES = (256, 128)
"""Examples in a batch; the bar is about the first."""
SPACE, DATA, NETWORK = "resnet-fabric:width=3,channels=16", "embedded:limit=2000,size=32", "resnet-20"
SEARCH = (
    *("--space", "resnet-fabric:width=3,channels=8", "--data", "embedded:size=16"),
    *("--budget", "macs<=40%", "--epochs", "6"),
)
LAUNCH = ("-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0")
PARTS = ("throughput", "seeds", "precision", "paper")


def child(arguments: Sequence[object], limit: float = 3600) -> str:
    """What a fresh Python process prints; it has one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, *map(str, arguments)]
    made = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=limit)
    if made.returncode not in (0, 3):
        raise SystemExit(f"{command} ended with {made.returncode}:\n{made.stderr[-2000:]}")
    return made.stdout


class Side:
    """One phase of a job that can be trained on in blocks of steps."""

    def __init__(self, job: Job, phase: str, steps: int) -> None:
        self.trainer = make_trainer(job)
        runner = make_runner(job, check_job(job), self.trainer)
        self.state = runner.state
        found: Any = next(part for part in runner.phases if part.name == phase)
        if phase == Finish.name:
            self.fit = self.state.single_out(self.state.net.architecture(NETWORK), self.trainer)
        else:
            self.fit = self.state.fit = self.trainer.begin(self.state.net)
        course: Course = found.course(self.state, self.trainer)
        self.course = replace(course, steps=steps, look=dict)

    def block(self) -> None:
        """So many steps."""
        self.fit.step = 0
        self.trainer.fit(self.course, self.fit, self.state)


def measured(job: Job, phase: str, blocks: int, steps: int) -> dict[str, list[float]]:
    """Seconds of each block, by both ranks and by the first alone while the other one sleeps."""
    processes = job.device.processes
    together = Side(job, phase, steps)
    alone = Side(replace(job, device=Device()), phase, steps) if processes.first else None
    seconds: dict[str, list[float]] = {"one": [], "two": [], "processor_one": [], "processor_two": []}
    for number in range(blocks + 1):
        for name in ("one", "two") if number % 2 else ("two", "one"):
            processes.agree(0.0)
            start, processor = time.perf_counter(), time.process_time()
            if name == "two":
                together.block()
            elif alone is not None:
                alone.block()
            processor = time.process_time() - processor
            processes.agree(0.0)
            if number:  # the first block warms up
                seconds[name].append(time.perf_counter() - start)
                seconds[f"processor_{name}"].append(processor)
    return seconds


def exchanged(job: Job, repeats: int = 20) -> dict[str, float]:
    """Seconds of the exchanges of a step: gradients and statistics of the super network, and one small agreement."""
    processes = job.device.processes
    tensors = [torch.zeros_like(value) for value in [*job.net.parameters(), *job.net.buffers()]]
    found = {}
    for name, run in (("gradients", lambda: processes.average(tensors)), ("agreement", lambda: processes.agree(0.0))):
        times = []
        for _ in range(repeats):
            processes.agree(0.0)
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        found[name] = median(times)
    found["bytes"] = float(sum(value.numel() * value.element_size() for value in tensors))
    return found


def work(blocks: int, steps: int) -> None:
    """What a rank does for `throughput`, on a core of its own; the first prints."""
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    found: dict[str, Any] = {"steps": steps, "batches": {}}
    for size in BATCHES:
        job = prepare(Config(space=SPACE, data=DATA, device="cpu", threads=1, batch_size=size))
        phases = {phase: measured(job, phase, blocks, steps) for phase in (Search.name, Finish.name)}
        found["batches"][str(size)] = phases
    found["exchange"] = exchanged(job)
    if job.device.processes.first:
        print(json.dumps(found))
    Processes.leave()


def throughput(blocks: int, steps: int) -> dict[str, Any]:
    """Ratios of one rank's seconds to those of two, block by block."""
    said = child([*LAUNCH, "--nproc-per-node", 2, "-m", "benchmarks.scaling", "--work", blocks, "--steps", steps])
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    for phases in found["batches"].values():
        phases |= {phase: _ratios(seconds, found["steps"]) for phase, seconds in phases.items()}
    return found


def _ratios(seconds: dict[str, list[float]], steps: int) -> dict[str, Any]:
    return {
        "ratios": paired(seconds["one"], seconds["two"]),
        "processor_ratios": paired(seconds["processor_one"], seconds["processor_two"]),
        "seconds_a_step": {name: median(values) / steps for name, values in seconds.items()},
    }


def search(seed: int, count: int, *more: object) -> float:
    """The test accuracy of a whole search."""
    with tempfile.TemporaryDirectory() as folder:
        launch = ["-m"] if count == 1 else [*LAUNCH, "--nproc-per-node", count, "-m"]
        options = ["--seed", seed, "--quiet", "--device", "cpu", "--threads", 1, "--out", Path(folder) / "run"]
        child([*launch, "budgetnet", "search", *SEARCH, *options, *more])
        summary = RunFolder(Path(folder) / "run").summary()
        assert summary.met
        assert summary.test_score is not None
        return summary.test_score


def compared(one: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """Paired differences in accuracy, their mean and its standard error."""
    differences = [b - a for a, b in zip(one, other, strict=True)]
    error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {"scores": [list(one), list(other)], "mean_difference": fmean(differences), "standard_error": error}


def paper() -> dict[str, Any]:
    """The model of docs/scaling.md for the paper's deepest fabric and for ViT-B/16 with its units as gates."""
    with torch.device("meta"):
        net = resnet_fabric(width=18, classes=10, input_shape=(3, 32, 32))
    full = net.graph.full
    edges = len(net.graph.edges)
    tensors = sum(1 for _ in net.parameters())
    fabric = model.Work("ResNet fabric, w=18", params(net)(full), macs(net)(full), 0.4, edges, 30 * edges, 0.1, tensors)
    vit = model.Work("ViT-B/16", 86.6e6, 16.9e9, 0.6, 12 * (12 + 48), 12 * 90, 0.4, 152)
    return model.table([fabric, vit], 64, 8, model.Cluster())


def main() -> None:
    """Runs the parts that were asked for; the others stay as they are in the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.steps)
        return
    parts, path = options.parts.split(","), RESULTS / "scaling.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = {name: before.get(name) for name in PARTS}
    if "paper" in parts:
        found["paper"] = paper()
    if "throughput" in parts:
        found["throughput"] = throughput(options.blocks, options.steps)
    ones: list[float] = []
    if "seeds" not in parts and before.get("seed_numbers") == options.seeds and before.get("seeds"):
        ones = before["seeds"]["scores"][0]  # these searches were made before
    elif "seeds" in parts or "precision" in parts:
        ones = [search(seed, 1) for seed in options.seeds]
    if "seeds" in parts:
        found["seeds"] = compared(ones, [search(seed, 2) for seed in options.seeds])
    if "precision" in parts:
        found["precision"] = compared(ones, [search(seed, 1, "--precision", "bf16") for seed in options.seeds])
    write_answers(
        "scaling", answers(found), seed_numbers=options.seeds, search=list(SEARCH), space=SPACE, data=DATA, **found
    )


def answers(found: dict[str, Any]) -> list[Any]:
    """The rows of the table."""
    rows = []
    if found["throughput"]:
        for size, phases in found["throughput"]["batches"].items():
            for phase, seen in phases.items():
                bar = BAR if size == str(BATCHES[0]) else None
                said = f"{phase}, batches of {size}: steps a second, two processes over one"
                rows.append(answer(said, seen["ratios"], bar, ">="))
                rows.append(answer(f"{phase}, {size}: processor time, one over each of two", seen["processor_ratios"]))
    if found["seeds"]:
        difference = [b - a for a, b in zip(*found["seeds"]["scores"], strict=True)]
        rows.append(answer("accuracy of two processes minus one's", difference))
    if found["precision"]:
        rows.append(answer("accuracy lost by bf16", [-found["precision"]["mean_difference"]], POINTS))
    return rows


if __name__ == "__main__":
    main()
