"""`--profile`: where the time of a run went, as a table and in the folder; the run is the same run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.small_runs import TINY, run_cli, same_run

PARTS = {
    "warm-up": {"data", "sampling and plan", "forward", "backward", "optimizer", "records", "checkpoint", "evaluation"},
    "search": {
        *("data", "sampling and plan", "forward", "backward", "optimizer", "policy and costs", "records"),
        *("checkpoint", "evaluation"),
    },
    "choose": {"records", "checkpoint"},
    "race": {"data", "forward", "backward", "optimizer", "records", "checkpoint", "evaluation"},
    "finish": {"data", "forward", "backward", "optimizer", "records", "checkpoint", "evaluation"},
}


def test_the_time_of_a_search_is_told_by_phase_and_part(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    start = time.perf_counter()
    code, out, _ = run_cli(capsys, "search", *TINY, "--profile", "--out", tmp_path / "profiled")
    wall = time.perf_counter() - start
    assert code == 0
    rows = json.loads((tmp_path / "profiled" / "profile.json").read_text())
    assert list(dict.fromkeys(row["phase"] for row in rows)) == ["load", "check", *PARTS, "certify", "report"]
    for phase, parts in PARTS.items():
        assert parts <= {row["part"] for row in rows if row["phase"] == phase}, phase
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert 0.8 * wall < sum(row["seconds"] for row in rows) <= wall
    assert all(row["seconds"] >= 0 for row in rows)
    shown = out.splitlines()
    assert shown[0].split() == ["phase", "part", "seconds", "share"]
    assert any(line.startswith("search") and "policy and costs" in line for line in shown)
    run_cli(capsys, "search", *TINY, "--out", tmp_path / "plain")
    assert not (tmp_path / "plain" / "profile.json").exists()
    same_run(tmp_path / "profiled", tmp_path / "plain")


def test_training_has_no_search_in_its_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [*TINY[2:], "--profile", "--json", "--out", tmp_path / "run"]
    code, out, _ = run_cli(capsys, "train", TINY[1], "--architecture", "full", *options)
    assert code == 0
    json.loads(out)
    phases = {row["phase"] for row in json.loads((tmp_path / "run" / "profile.json").read_text())}
    assert phases == {"load", "check", "finish", "certify", "report"}
