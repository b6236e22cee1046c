"""`budgetnet runs` and `budgetnet show`: finished, unfinished and broken folders."""

import json
import re
from pathlib import Path

import pytest

from tests.run_folders import make_run
from tests.small_runs import refused, run_cli

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one on its way, and something else."""
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "a-done")
    make_run(folder / "b-going", stop_after=6)
    (folder / "c-else").mkdir()
    (folder / "notes.txt").write_text("mine")
    return folder


def test_runs_lists_what_there_is_and_how_far(capsys: Capture, folder: Path) -> None:
    code, out, err = run_cli(capsys, "runs", folder, "--json")
    assert (code, err) == (0, "")
    done, going = json.loads(out)
    summary = json.loads((folder / "a-done" / "summary.json").read_text())
    assert done["state"] == "finished"
    assert done["validation_accuracy"] == summary["validation_accuracy"]
    assert done["budgets"] == ["macs<=50%"]
    last = json.loads((folder / "b-going" / "records.jsonl").read_text().splitlines()[-1])
    assert going["state"] == f"{last['phase']}, epoch {last['epoch']}"
    assert going["validation_accuracy"] is None
    code, out, _ = run_cli(capsys, "runs", folder)
    assert code == 0
    assert "a-done" in out
    assert "b-going" in out
    assert "c-else" not in out
    assert f"{summary['validation_accuracy']:.2%}" in out


def test_runs_looks_into_runs_if_nothing_is_said(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "runs" in refused(capsys, "runs")
    (tmp_path / "runs").mkdir()
    assert run_cli(capsys, "runs", "--json")[:2] == (0, "[]\n")


def test_show_prints_one_run(capsys: Capture, folder: Path) -> None:
    code, out, err = run_cli(capsys, "show", folder / "a-done", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == json.loads((folder / "a-done" / "summary.json").read_text())
    going = json.loads(run_cli(capsys, "show", folder / "b-going", "--json")[1])
    assert going["state"].startswith(("warm-up", "search"))
    code, out, _ = run_cli(capsys, "show", folder / "b-going")
    assert code == 0
    assert "not finished" in out
    assert "--resume" in out


def test_show_prints_a_finished_run_for_people(capsys: Capture, folder: Path) -> None:
    code, out, _ = run_cli(capsys, "show", folder / "a-done")
    assert code == 0
    assert re.search(r"^validation accuracy +86.10%", out, re.M)
    assert re.search(r"^test accuracy +85.30%", out, re.M)
    assert "macs" in out


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"config": 3}', '{"config": {"colour": 1}}'])
def test_a_broken_configuration_is_one_sentence(capsys: Capture, tmp_path: Path, content: str) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text(content)
    assert "config.json" in refused(capsys, "show", tmp_path / "broken")
    whole = make_run(tmp_path / "whole", epochs=4)
    code, out, _ = run_cli(capsys, "runs", tmp_path, "--json")
    broken, good = json.loads(out)
    assert (code, broken["state"], good["run"]) == (0, "damaged", str(whole)), "one bad run does not hide the others"
    assert "config.json" in broken["problem"]
    code, out, _ = run_cli(capsys, "runs", tmp_path)
    assert code == 0
    assert "finished" in out


def test_what_is_no_run_is_one_sentence(capsys: Capture, folder: Path, tmp_path: Path) -> None:
    assert "config.json" in refused(capsys, "show", folder / "c-else")
    assert "none" in refused(capsys, "show", tmp_path / "none")
    assert "none" in refused(capsys, "runs", tmp_path / "none")
    assert "notes.txt" in refused(capsys, "runs", folder / "notes.txt")
