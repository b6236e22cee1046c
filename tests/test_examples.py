"""Every file in `examples/` runs, as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), f"{path.name} prints nothing: an example says what it does"


def test_the_users_own_super_network_is_shown_in_under_40_lines() -> None:
    (path,) = [path for path in EXAMPLES if path.name == "mlp_dag.py"]
    assert len(path.read_text().splitlines()) < 40
