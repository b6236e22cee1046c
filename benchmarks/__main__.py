"""Runs every benchmark in turn and writes benchmarks/results: `make bench`, or `python -m benchmarks NAME…`.

Those on CIFAR-10 need its folder in BUDGETNET_DATA and are left out, with a word, where it is not set. All of them
together take hours; a name or several choose.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import RESULTS, table

NEEDS_DATA = frozenset(
    {
        *("ablation", "costs_shape", "curve", "distillation", "learns", "paper_method", "quality", "ranking"),
        *("rivals", "segmentation", "trained"),
    }
)


def main() -> int:
    """Runs the benchmarks that are named, or all of them; the number of those that failed."""
    folder = Path(__file__).parent
    known = sorted(path.stem for path in [*folder.glob("[a-z]*.py"), *(p.parent for p in folder.glob("*/__main__.py"))])
    chosen = sys.argv[1:] or known
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; use {', '.join(known)}", file=sys.stderr)
        return 2
    failed = [name for name in chosen if _failed(name)]
    _summarise(chosen)
    for name in failed:
        print(f"{name}: failed", file=sys.stderr)
    return len(failed)


def _summarise(names: Sequence[str]) -> None:
    """One table of every ratio that was asked for, then the verdicts of the benchmarks that have no ratios."""
    results: dict[str, dict[str, Any]] = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in names
        if (path := RESULTS / f"{name}.json").exists()
    }
    rows = [row for result in results.values() for row in result.get("answers", ())]
    if rows:
        print("\n" + table(rows))
    for name, result in results.items():
        if "passed" in result:
            print(f"{name}: {'passed' if result['passed'] else 'NOT passed'}")


def _failed(name: str) -> bool:
    root = os.environ.get("BUDGETNET_DATA")
    if name in NEEDS_DATA and not root:
        print(f"{name}: left out, BUDGETNET_DATA does not name the folder of CIFAR-10", file=sys.stderr)
        return False
    print(f"{name} …", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
