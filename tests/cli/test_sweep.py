"""`budgetnet sweep`: its lists, its file, its dry run, and bad input as one sentence."""

import json
import sys
from pathlib import Path

import pytest

from budgetnet.cli.commands.running import repeated
from tests.small_runs import TINY, refused, run_cli

Capture = pytest.CaptureFixture[str]


def test_lists_may_be_written_without_repeating_their_name() -> None:
    given = ["plan.toml", "--seeds", "0", "1", "--epochs", "2", "--budgets", "macs<=4%", "--seeds=3", "--quiet"]
    assert list(repeated(given)) == [
        *(
            "plan.toml",
            "--seeds",
            "0",
            "--seeds",
            "1",
            "--epochs",
            "2",
            "--budgets",
            "macs<=4%",
            "--seeds=3",
            "--quiet",
        ),
    ]


def test_a_dry_run_prints_the_plan_with_times_and_refusals_and_writes_nothing(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--budgets", "macs<=60%", "macs<=1%", "--architectures", "full", "--seeds", 0, 1, "--dry-run")
    code, out, err = run_cli(capsys, "sweep", *TINY, *options, "--out", "s")
    assert code == 0, err
    assert "macs-60pct_fast_seed-1" in out
    assert "cannot be met" in out
    assert "6 runs" in out
    code, out, err = run_cli(capsys, "sweep", *TINY, *options, "--out", "s", "--json")
    rows = json.loads(out)
    assert [row["seconds"] is None for row in rows] == [False, False, True, True, False, False]
    assert all(row["seconds"] > 0 for row in rows if row["seconds"] is not None)
    assert rows[5]["config"]["architecture"] == "full"
    assert list(tmp_path.iterdir()) == []


def test_a_file_and_the_command_line_have_the_same_settings(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(
        f'space = "{TINY[1]}"\ndata = "{TINY[3]}"\nepochs = 1\nbatch-size = 64\n'
        'budgets = ["macs<=60%", "macs<=70%"]\nseeds = [0, 1]\n'
    )
    by_file = json.loads(run_cli(capsys, "sweep", "plan.toml", "--seeds", 4, "--dry-run", "--json")[1])
    options = ("--budgets", "macs<=60%", "macs<=70%", "--seeds", 4, "--out", "s", "--dry-run", "--json")
    by_line = json.loads(run_cli(capsys, "sweep", *TINY, *options)[1])
    assert [(row["run"], row["config"]) for row in by_file] == [(row["run"], row["config"]) for row in by_line]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budgets", "macs<=4%"], "--out"),
        (["--out", "s"], "no budgets"),
        (["plan.toml"], "plan.toml"),
        (["--seeds", "0", "plan.toml"], "plan.toml"),
        (["--budgets", "macs<=4%", "--out", "s", "--engine", "dask"], "--address"),
        (["--budgets", "macs<=4%", "--out", "s", "--address", "tcp://x:1"], "--engine dask"),
        (["--budgets", "macs<=4%", "--out", "s", "--workers", "1000"], "1000 workers"),
        (["--budgets", "macs<=4%", "--out", "s", "--engine", "ray"], "ray"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "sweep", *options)


def test_without_the_extra_its_line_is_printed(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    options = ("--budgets", "macs<=40%", "--out", tmp_path / "s", "--engine", "dask", "--address", "tcp://x:1")
    assert "pip install 'budgetnet[cluster]'" in refused(capsys, "sweep", *options)
