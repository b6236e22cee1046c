"""Runs every benchmark in turn and writes benchmarks/results: `make bench`, or `python -m benchmarks NAME…`.

Those on CIFAR-10 need its folder in BUDGETNET_DATA and are left out, with a word, where it is not set. All of them
together take hours; a name or several choose.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NEEDS_DATA = frozenset({"learns"})


def main() -> int:
    """Runs the benchmarks that are named, or all of them; the number of those that failed."""
    known = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
    chosen = sys.argv[1:] or known
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        print(f"there is no benchmark {unknown[0]!r}; use {', '.join(known)}", file=sys.stderr)
        return 2
    return sum(_failed(name) for name in chosen)


def _failed(name: str) -> bool:
    root = os.environ.get("BUDGETNET_DATA")
    if name in NEEDS_DATA and not root:
        print(f"{name}: left out, BUDGETNET_DATA does not name the folder of CIFAR-10", file=sys.stderr)
        return False
    print(f"{name} …", flush=True)
    data = ["--data-root", root] if name in NEEDS_DATA and root else []
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *data]).returncode != 0


if __name__ == "__main__":
    sys.exit(main())
