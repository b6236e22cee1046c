"""Mutated files and texts: no traceback, no unexpected exit code, no hang, nothing changed outside the run."""

from __future__ import annotations

from pathlib import Path

from benchmarks import fuzz

FILES, TEXTS, SEED = 300, 2000, 7


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


def test_the_fuzzer_sees_a_fault(tmp_path: Path) -> None:
    """One that could see nothing would pass all the same."""
    found = fuzz.Found()
    fuzz._case(["cost", "resnet-fabric:width=1", "--input", "1x8x8"], found, "fine")
    assert found.faults == []

    def broken(_: object) -> tuple[int, str]:
        return 2, f"error: KeyError: x; {fuzz.UNEXPECTED}"

    original, fuzz.quietly = fuzz.quietly, broken  # type: ignore[assignment]
    try:
        fuzz._case(["cost"], found, "broken")
    finally:
        fuzz.quietly = original
    assert len(found.faults) == 1
