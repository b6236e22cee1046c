"""Data flows one way: a module imports only from the rows above it, and importing the package changes nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import budgetnet

ROOT = Path(budgetnet.__file__).parent

ORDER = """
errors graph rows plan supernet naming spaces sampling estimators extract export costs budget feasibility data feeds
tasks evaluation archive stopwatch records progress tracking environment checkpoint recipes policy capacity settle race
choice search duration certify pictures pareto draw report config folders run sweep reproduce watch cli __main__ testing
""".split()  # noqa: SIM905
"""Top to bottom."""

OPTIONAL = ("onnx", "onnxruntime", "onnxscript", "altair", "vl_convert", "tensorboard", "dask", "distributed", "pandas")

LOOK_AROUND = """
import json, logging, os, sys, threading, warnings
import numpy, torch

def state():
    return {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "random": torch.get_rng_state().tolist(),
        "numpy random": str(numpy.random.get_state()),
        "gradients": torch.is_grad_enabled(),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
        "precision": torch.get_float32_matmul_precision(),
        "warnings": str(warnings.filters),
        "log handlers": str(logging.getLogger().handlers),
        "log level": logging.getLogger().level,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": sys.path,
        "running threads": threading.active_count(),
        "recursion": sys.getrecursionlimit(),
        "exception hook": str(sys.excepthook),
    }

before, loaded = state(), set(sys.modules)
import budgetnet
after = state()
changed = [name for name in before if before[name] != after[name]]
new = sorted({name.partition(".")[0] for name in set(sys.modules) - loaded})
print(json.dumps({"changed": changed, "new": new}))
"""


def row(path: Path) -> str:
    """The row of a file: its module, or the package directly under budgetnet."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """(line, row) of every import of budgetnet in a file, wherever it stands; `` is budgetnet itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "budgetnet":
            names = [f"budgetnet.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "" if node.level == 0 else "budgetnet"]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "budgetnet":
                yield node.lineno, rest.partition(".")[0]


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_rows_above_it(path: Path) -> None:
    own = row(path)
    assert own in ORDER, f"{own} has no row: add it to ORDER in this test and to the table of ARCHITECTURE.md"
    for line, target in imported(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        assert target in ORDER, (
            f"{where} imports {target or 'the whole package'!r}: import from its modules by full name"
        )
        assert target == own or ORDER.index(target) < ORDER.index(own), (
            f"{where}: {own} imports {target}, which is below it; data flows down, so move what both need further up"
        )


def test_nobody_imports_the_conformance_suites() -> None:
    for path in [*FILES, ROOT / "__init__.py"]:
        assert row(path) == "testing" or all(target != "testing" for _, target in imported(path)), path


def test_every_way_to_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "import budgetnet\nimport budgetnet.graph as g\nfrom budgetnet import plan\n"
        "from budgetnet.costs.units import show\n"
        "def f():\n    from budgetnet.cli import main\n    from . import y\n    import torch, budgetnet.run\n"
    )
    assert sorted(target for _, target in imported(path)) == ["", "", "cli", "costs", "graph", "plan", "run"]


def test_importing_the_package_changes_nothing_and_loads_nothing_optional() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK_AROUND], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["changed"] == []
    assert not set(found["new"]) & set(OPTIONAL)
    assert done.stderr == ""
