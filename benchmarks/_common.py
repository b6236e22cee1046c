"""What benchmarks share: where a result goes, what it was made on, and ratios that a busy machine cannot spoil."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any, TypeVar

import torch

from budgetnet.records import environment

RESULTS = Path(os.environ.get("BENCHMARK_RESULTS") or Path(__file__).parent / "results")
"""Another folder keeps the numbers of a trial apart from those that are committed."""
ROOT = Path(__file__).parent.parent
PLACES = {"--data-root": "DATA", "--out": "FOLDER", "--peers": "PYTHON"}
"""Options that name a place, and what stands for it in the command of a result."""
T = TypeVar("T")


def machine() -> dict[str, Any]:
    """Processor, cores, threads; no host names."""
    return environment.machine()


def pin_threads(count: int = 1) -> None:
    """Torch on so many threads: two beside another busy process can be slower than one."""
    torch.set_num_threads(count)


def write_result(name: str, payload: Mapping[str, Any], variant: str = "") -> Path:
    """Writes results/NAME.json with what made it, and prints the payload. Give seeds, n, mean and spread in it.

    Variants of a benchmark have files of their own: results/NAME_VARIANT.json.
    """
    path = save_result(name, payload, variant)
    print(json.dumps(payload, indent=1, ensure_ascii=False))
    return path


def command(name: str, arguments: Sequence[str]) -> str:
    """How to make a result again; where things lie on this machine is nobody's business."""
    said = [PLACES.get(before, given) for before, given in zip(["", *arguments], arguments, strict=False)]
    return shlex.join(["python", "-m", f"benchmarks.{name}", *said])


def save_result(name: str, payload: Mapping[str, Any], variant: str = "") -> Path:
    """The same without printing."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    made = {
        "benchmark": name,
        "command": command(name, sys.argv[1:]),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": environment.versions(),
        "machine": machine(),
    }
    path = RESULTS / f"{name}_{variant}.json" if variant else RESULTS / f"{name}.json"
    path.write_text(json.dumps({**made, **payload}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True)
class Answer:
    """One row of the table: a question, what was found, and the bar that it is held against, if there is one."""

    question: str
    ratio: float
    lower_quartile: float
    upper_quartile: float
    n: int
    bar: float | None = None
    direction: str = "<="
    unit: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median is within the bar; None where there is none."""
        if self.bar is None:
            return None
        return self.ratio <= self.bar if self.direction == "<=" else self.ratio >= self.bar


def answer(question: str, values: Sequence[float], bar: float | None = None, direction: str = "<=") -> Answer:
    """The median of paired values and their quartiles, against a bar."""
    low, middle, high = quartiles(values)
    return Answer(question, middle, low, high, len(values), bar, direction)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; of a single value, that value."""
    if len(values) == 1:
        return (values[0],) * 3
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return low, middle, high


def write_answers(name: str, answers: Sequence[Answer], **more: Any) -> Path:
    """Writes results/NAME.json and prints a row for every answer. `more` is what else is worth knowing."""
    held = [found.met for found in answers if found.met is not None]
    rows = [{**asdict(found), "met": found.met} for found in answers]
    path = save_result(name, {"bar": [found.bar for found in answers], "met": all(held), "answers": rows, **more})
    print(table(rows), flush=True)
    return path


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Question, median, quartiles, n, bar, met, as text."""
    head = ("question", "median", "quartiles", "n", "bar", "met")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    unit = row["unit"] and f" {row['unit']}"
    spread = f"{row['lower_quartile']:.3f}–{row['upper_quartile']:.3f}"
    bar = "" if row["bar"] is None else f"{'≤' if row['direction'] == '<=' else '≥'} {row['bar']:g}"
    met = {None: "reported", True: "yes", False: "NO"}[row["met"]]
    return row["question"], f"{row['ratio']:.3f}{unit}", spread, str(row["n"]), bar, met


def summarise(values: Iterable[float]) -> dict[str, float]:
    """n, mean, standard deviation, least, median and most."""
    found = sorted(values)
    spread = stdev(found) if len(found) > 1 else 0.0
    ends = {"min": found[0], "median": median(found), "max": found[-1]}
    return {"n": len(found), "mean": fmean(found), "std": spread, **ends}


def rounds(sides: Mapping[str, Callable[[], object]], repeats: int, warmups: int = 2) -> dict[str, list[float]]:
    """Seconds of every side in each round. All sides run once a round, so a slow moment hits all of them alike."""
    for _ in range(warmups):
        for run in sides.values():
            run()
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(repeats):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.perf_counter()
            sides[name]()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def paired(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """a/b of each round."""
    return [one / other for one, other in zip(a, b, strict=True)]


def interleave(a: Callable[[], object], b: Callable[[], object], repeats: int) -> dict[str, float]:
    """Runs a and b in turns, after a warm-up of each: the median of the paired ratios a/b, and their quartiles."""
    seconds = rounds({"a": a, "b": b}, repeats)
    low, middle, high = quartiles(paired(seconds["a"], seconds["b"]))
    return {"ratio": middle, "lower_quartile": low, "upper_quartile": high, "n": repeats}


def arguments(description: str | None, **numbers: int) -> argparse.Namespace:
    """The command line of a benchmark: whole numbers with their defaults, such as `--repeats 20`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def add_data_root(parser: argparse.ArgumentParser) -> None:
    """`--data-root`, which BUDGETNET_DATA can stand for."""
    root = os.environ.get("BUDGETNET_DATA")
    parser.add_argument("--data-root", default=root, required=not root, help="folder of CIFAR-10 or Part Labels")


def numbers(text: str) -> list[int]:
    """`0,1` as a list: the type of an option such as `--seeds`."""
    return [int(part) for part in text.split(",")]


def shares(text: str) -> list[float]:
    """`0.6,0.3` as a list."""
    return [float(part) for part in text.split(",")]


def per_share(asked: Sequence[float], values: list[T]) -> dict[float, T]:
    """The value of each share that was asked for; a single one is that of all."""
    return dict(zip(asked, values * len(asked) if len(values) == 1 else values, strict=True))


def commit(tree: Path = ROOT) -> str:
    """The commit of a tree, with a mark if it has changes to code."""
    git = ["git", "-C", str(tree)]
    try:
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+changes" if changed.stdout.strip() else "")
