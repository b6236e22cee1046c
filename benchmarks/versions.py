"""Is this version as fast as another one? The ratios of speed benchmarks in two trees, in turns.

Each round runs the benchmarks of both trees in processes of their own, in an order that changes from round to round; a
ratio of one version over the same ratio of the other is what both versions share the machine for. Files of the two
versions' own benchmarks are used, so that a change of the interface does not matter.

    git clone . ../other && git -C ../other checkout COMMIT
    python -m benchmarks.versions ../other [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._common import ROOT, answer, commit, summarise, write_answers

BAR = 1.02
PROGRAMS = {
    "search_step": ("--large", "3", "--small", "30"),
    "gated_overhead": ("--large", "6", "--small", "60"),
    "search_wall": (),
}


def ratios(tree: Path, program: str) -> dict[str, float]:
    """What a benchmark of a tree found: the median of every question."""
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPATH": str(tree / "src"), "BENCHMARK_RESULTS": folder, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{program}", *PROGRAMS[program]]
        subprocess.run(command, cwd=tree, env={**os.environ, **own}, check=True, stdout=subprocess.DEVNULL)
        [file] = Path(folder).glob("*.json")
        found: dict[str, Any] = json.loads(file.read_text())
    return {row["question"]: row["ratio"] for row in found["answers"]}


def main() -> None:
    """Both trees, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="the tree of the other version")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.other is None:
        print("versions: left out, since it compares with a tree that must be named")
        return
    here, other = ROOT, options.other.resolve()
    seen: dict[str, dict[str, list[float]]] = {program: defaultdict(list) for program in PROGRAMS}
    for number in range(options.rounds):
        for program in PROGRAMS:
            order = (here, other) if number % 2 == 0 else (other, here)
            found = {tree: ratios(tree, program) for tree in order}
            for question in found[here].keys() & found[other].keys():
                seen[program][question].append(found[here][question] / found[other][question])
            print(f"round {number + 1}/{options.rounds}: {program}", flush=True)
        report(seen, other)


def report(seen: Mapping[str, Mapping[str, list[float]]], other: Path) -> None:
    """Writes what the rounds so far have found."""
    answers = []
    for program, questions in seen.items():
        values = [value for row in questions.values() for value in row]
        answers.append(answer(f"{program}, this version / the other, all questions", values, BAR))
    details = [
        {"program": program, "question": question, "ratios": row, **summarise(row)}
        for program, questions in seen.items()
        for question, row in sorted(questions.items())
    ]
    write_answers("versions", answers, seeds=[0], other=commit(other), questions=details)


if __name__ == "__main__":
    main()
