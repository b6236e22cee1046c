"""Mutated files and texts: no traceback, no unexpected exit code, no hang, nothing changed outside the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fuzz
from benchmarks._cases import Found, run_case

FILES, TEXTS, SEED = 2_000, 10_000, 12


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    found = fuzz.folders(fuzz.make_run(tmp_path / "made"), FILES, SEED, tmp_path / "work")
    assert found.faults == []
    assert found.cases == FILES
    assert found.codes["0"] > FILES / 20
    assert found.codes["2"] > FILES / 5


def test_mutated_texts_are_read_or_refused() -> None:
    found = fuzz.texts(TEXTS, SEED)
    assert found.faults == []
    assert found.codes["accepted"] > TEXTS / 20
    assert found.codes["refused"] > TEXTS / 2


def test_the_fuzzer_sees_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could see nothing would pass all the same."""
    found = Found()
    run_case(["cost", "resnet-fabric:width=1", "--input", "1x8x8"], found, "fine")
    assert found.faults == []
    for error in (KeyError("x"), PermissionError(13, "denied", "file")):

        def broken(*arguments: object, problem: Exception = error, **options: object) -> None:
            raise problem

        monkeypatch.setattr("budgetnet.cli.cost.build", broken)
        run_case(["cost", "resnet-fabric"], found, "broken")
    assert len(found.faults) == 2
    assert "KeyError" in found.faults[0]
    assert "PermissionError" in found.faults[1]
    assert "error: file cannot be used (denied); check the path" in found.faults[1]
