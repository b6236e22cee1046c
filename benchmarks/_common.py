"""What benchmarks share: where a result goes, what it was made on, and ratios that a busy machine cannot spoil."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any

import torch

from budgetnet import environment

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent


def machine() -> dict[str, Any]:
    """Processor, cores, threads; no host names."""
    return environment.machine()


def pin_threads(count: int = 1) -> None:
    """Torch on so many threads: two beside another busy process can be slower than one."""
    torch.set_num_threads(count)


def write_result(name: str, payload: Mapping[str, Any]) -> Path:
    """Writes results/NAME.json with what made it, and prints the payload. Give seeds, n, mean and spread in it."""
    RESULTS.mkdir(exist_ok=True)
    made = {
        "benchmark": name,
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": environment.versions(),
        "machine": machine(),
    }
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**made, **payload}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(payload, indent=1, ensure_ascii=False))
    return path


def summarise(values: Iterable[float]) -> dict[str, float]:
    """n, mean, standard deviation, least, median and most."""
    found = sorted(values)
    spread = stdev(found) if len(found) > 1 else 0.0
    ends = {"min": found[0], "median": median(found), "max": found[-1]}
    return {"n": len(found), "mean": fmean(found), "std": spread, **ends}


def interleave(a: Callable[[], object], b: Callable[[], object], repeats: int) -> dict[str, float]:
    """Runs a and b in turns, after a warm-up of each: the median of the paired ratios a/b, and their quartiles."""
    for run in (a, b, a, b):
        run()
    ratios = []
    for _ in range(repeats):
        start = time.perf_counter()
        a()
        middle = time.perf_counter()
        b()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    low, middle_ratio, high = quantiles(ratios, n=4) if repeats > 1 else (ratios[0],) * 3
    return {"ratio": middle_ratio, "lower_quartile": low, "upper_quartile": high, "n": repeats}


def _commit() -> str:
    """The commit, with a mark if the tree has changes to code."""
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+changes" if changed.stdout.strip() else "")
