"""Data flows one way: a module imports only from the rows above it, and importing the package changes nothing."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import budgetnet

ROOT = Path(budgetnet.__file__).parent

TABLE = re.compile(r"^\| `([\w]+)/?` \| ([^|]*)\|", re.M)
ORDER = {
    room: re.findall(r"`([\w]+)/?`", files)
    for room, files in TABLE.findall((ROOT.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8"))
}
"""The rooms from top to bottom, each with its files, as ARCHITECTURE.md has them."""
ROOMS = list(ORDER)
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
"""Lines."""

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
for name in budgetnet.__all__:
    getattr(budgetnet, name)
after = state()
changed = [name for name in before if before[name] != after[name]]
new = sorted({name.partition(".")[0] for name in set(sys.modules) - loaded})
print(json.dumps({"changed": changed, "new": new}))
"""


Place = tuple[str, str]
"""A room, and a file or folder in it; `` for the room itself."""


def place(parts: Sequence[str]) -> Place:
    """The place of a module by the parts of its name below budgetnet."""
    room, file = (*parts, "", "")[:2]
    return room, "" if file == "__init__" else file


def own_place(path: Path) -> Place:
    """The place of a file of the package."""
    return place(path.relative_to(ROOT).with_suffix("").parts)


def imported(path: Path) -> Iterator[tuple[int, Place]]:
    """(line, place) of every import of budgetnet in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or "" if node.level == 0 else "budgetnet"
            names = [f"{module}.{alias.name}" if _is_module(module, alias.name) else module for alias in node.names]
        for name in dict.fromkeys(names):
            package, *rest = name.split(".")
            if package == "budgetnet":
                yield node.lineno, place(rest)


def _is_module(package: str, name: str) -> bool:
    """Whether an imported name is a module; what comes from budgetnet itself always counts as one."""
    path = ROOT.parent.joinpath(*package.split("."), name)
    return package == "budgetnet" or path.is_dir() or path.with_suffix(".py").is_file()


FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_what_is_above_it(path: Path) -> None:
    own_room, own_file = own_place(path)
    assert own_room in ORDER, f"{own_room} is not in the table of ARCHITECTURE.md"
    assert not own_file or own_file in ORDER[own_room], f"{own_room}/{own_file} is not in the table of ARCHITECTURE.md"
    for line, (room, file) in imported(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        assert room in ORDER, f"{where} imports {room or 'the whole package'!r}: import from its modules by full name"
        if room != own_room:
            assert ROOMS.index(room) < ROOMS.index(own_room), (
                f"{where}: {own_room} imports {room}, which is below it; data flows down, so move what both need up"
            )
        elif own_file and file != own_file:
            assert file, f"{where} imports its own room: import from the file that has it"
            files = ORDER[room]
            assert files.index(file) < files.index(own_file), f"{where}: {own_file} imports {file}, which is below it"


def test_the_table_names_nothing_that_is_not_there() -> None:
    for room, files in ORDER.items():
        assert (ROOT / room).is_dir() or (ROOT / f"{room}.py").is_file(), room
        for file in files:
            assert (ROOT / room / file).is_dir() or (ROOT / room / f"{file}.py").is_file(), f"{room}/{file}"


def test_the_top_of_the_package_is_short_and_no_room_hides_a_function() -> None:
    assert len(ROOMS) <= 16
    hidden = [room for room in ROOMS if callable(getattr(budgetnet, room, None))]
    assert not hidden


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short_enough_to_be_read_at_once(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= LONGEST_FILE, f"{path.relative_to(ROOT)} is too long: split it by concept"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            words = ast.get_docstring(node, clean=False) or ""  # an argument may be explained at any length
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - (words.count("\n") + 1 if words else 0)
            assert lines <= LONGEST_FUNCTION, f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines"


def test_nobody_imports_the_conformance_suites() -> None:
    for path in [*FILES, ROOT / "__init__.py"]:
        assert own_place(path)[0] == "testing" or all(room != "testing" for _, (room, _) in imported(path)), path


def test_every_way_to_import_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "import budgetnet\nimport budgetnet.network.graph as g\nfrom budgetnet import spaces\n"
        "from budgetnet.costs.units import show\nfrom budgetnet.network import extract\n"
        "def f():\n    from budgetnet.cli import main\n    from . import y\n    import torch, budgetnet.runs.config\n"
    )
    assert sorted(target for _, target in imported(path)) == [
        ("", ""),
        ("cli", ""),
        ("costs", "units"),
        ("network", "extract"),
        ("network", "graph"),
        ("runs", "config"),
        ("spaces", ""),
        ("y", ""),
    ]


def test_importing_the_package_changes_nothing_and_loads_nothing_optional() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK_AROUND], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["changed"] == []
    assert not set(found["new"]) & set(OPTIONAL)
    assert done.stderr == ""
