"""`budgetnet search` and `train`: what they print, how they end, and every bad input as one sentence."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.small_runs import TINY, refused, run_cli, same_run

Capture = pytest.CaptureFixture[str]
KEYS = {
    *("run", "space", "architecture", "budgets", "validation_accuracy", "test_accuracy", "macs", "params", "seconds"),
    "phases",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search, by a process of its own."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    process = start(out)
    assert process.wait(100) == 0, said(out).read_text()
    return out


def start(out: Path, *more: str) -> "subprocess.Popen[bytes]":
    """A search in a process of its own, which says what it says in a file beside its folder."""
    command = [sys.executable, "-m", "budgetnet", "search", *TINY, "--budget", "macs<=60%", "--out", str(out), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with said(out).open("wb") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)


def said(out: Path) -> Path:
    return out.with_suffix(".txt")


def wait_for(path: Path, process: "subprocess.Popen[bytes]", pattern: str = "*.checkpoint") -> None:
    """Until the process has saved a checkpoint."""
    limit = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < limit and not list(path.glob(pattern)):
        time.sleep(0.005)


def test_a_search_prints_its_summary_as_json(capsys: Capture, tmp_path: Path) -> None:
    arguments = ("--budget", "macs<=60%", "--budget", "steps(2)<=90%", "--out", tmp_path / "a", "--json")
    code, out, err = run_cli(capsys, "search", *TINY, *arguments)
    assert code == 0, err
    summary = json.loads(out)
    assert summary.keys() >= KEYS
    assert summary == json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["run"] == str(tmp_path / "a")
    assert [budget["cost"] for budget in summary["budgets"]] == ["macs", "steps(2)"]
    for budget in summary["budgets"]:
        assert budget.keys() >= {"cost", "unit", "maximum", "value", "met"}
        assert budget["met"]
        assert budget["value"] <= budget["maximum"]
    assert summary["macs"] == summary["budgets"][0]["value"]
    assert sum(summary["phases"].values()) == pytest.approx(summary["seconds"])
    assert "holds a run already" in refused(capsys, "search", *TINY, *arguments)
    code, out, err = run_cli(capsys, "search", "--out", tmp_path / "a", "--resume", "--json")
    assert (code, json.loads(out)) == (0, summary)
    assert "is finished" in err
    assert "was started with seed 0" in refused(capsys, "search", "--out", tmp_path / "a", "--resume", "--seed", "3")


def test_a_search_tells_what_is_reachable_first_and_what_is_certified_last(capsys: Capture, tmp_path: Path) -> None:
    loud = [argument for argument in TINY if argument != "--quiet"]
    budgets = ("--budget", "macs<=60%", "--budget", "size<=70%")
    code, out, err = run_cli(capsys, "search", *loud, *budgets, "--out", tmp_path / "a")
    assert code == 0, err
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert re.search(rf"^file_size +{summary['file_size'] / 1000:.4g} kB", out, re.M), "beside size"
    assert f"the exported file has {summary['file_size'] / 1000:.4g} kB" in out
    assert summary["file_size"] > summary["budgets"][1]["maximum"] >= summary["size"] == summary["budgets"][1]["value"]
    phases = r"(\w[\w-]* \d+ s, )*"
    assert re.search(rf"^\d+ s: {phases}(measuring|writing|finish) \d+ s$", out, re.M)
    assert "The exported file has" in (tmp_path / "a" / "report.html").read_text()
    order = ("satisfiable", "validation accuracy", "macs: exact", "the certificate holds", "next:")
    assert [out.index(part) for part in order] == sorted(out.index(part) for part in order)
    shown = [f"{budget['value'] / 1000:.4g}" for budget in summary["budgets"]]
    assert [out.count(value) for value in shown] == [1, 1], "each number once"
    assert re.search(r"^race 1/\d · epoch 1 +\d\d:", err, re.M)
    again = run_cli(capsys, "search", "--out", tmp_path / "a", "--resume")[1]
    assert out.endswith(again), "a finished run says the same again"


def test_the_next_commands_work(capsys: Capture, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run_cli(capsys, "show", whole)[1]
    commands = re.findall(r"^  budgetnet (.*?) +#", out.partition("next:")[2], re.M)
    assert [command.split()[0] for command in commands] == ["export", "certify", "predict"]
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8), 90).save("photo.png")
    for command in commands:
        code, said, err = run_cli(capsys, *shlex.split(command))
        assert code == 0, (command, said, err)


def test_killed_twice_and_resumed_it_ends_bit_identical(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    for pattern in ("00000000-*", "00000003-*"):
        process = start(out, "--resume")
        wait_for(out / "checkpoints", process, pattern)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
    process = start(out, "--resume")
    assert process.wait(100) == 0, said(out).read_text()
    same_run(whole, out)


def test_ctrl_c_saves_the_state_and_ends_with_130(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    process = start(out)
    wait_for(out / "checkpoints", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, said(out).read_text()
    assert "--resume" in said(out).read_text()
    assert "Traceback" not in said(out).read_text()
    process = start(out, "--resume")
    assert process.wait(100) == 0, said(out).read_text()
    same_run(whole, out)


def test_settings_of_the_optimizer_are_options_that_a_run_keeps(capsys: Capture, tmp_path: Path) -> None:
    given = ("--optimizer", "adamw", "--lr", "0.004", "--weight-decay", "0.03", "--schedule", "constant", "--clip", "2")
    arguments = ("train", TINY[1], *TINY[2:], "--out", tmp_path / "a", *given, "--lr-scale", "0.5")
    code, _, err = run_cli(capsys, *arguments)
    assert code == 0, err
    records = [json.loads(line) for line in (tmp_path / "a" / "records.jsonl").read_text().splitlines()]
    assert {record["lr"] for record in records if "lr" in record} == {0.002}
    kept = json.loads((tmp_path / "a" / "config.json").read_text())["config"]
    expected = {"optimizer": "adamw", "lr": 0.004, "weight_decay": 0.03, "schedule": "constant", "clip": 2}
    assert {name: kept[name] for name in expected} == expected
    other = refused(capsys, "train", TINY[1], "--out", tmp_path / "a", "--resume", "--lr", "0.1")
    assert "was started with lr 0.004, not 0.1" in other
    assert "lr=-1.0 is out of range" in refused(capsys, "train", *TINY[1:], "--lr", "-1")
    assert "optimizer of its own" in refused(capsys, "train", *TINY[1:], "--recipe", "paper", "--lr", "1")


def test_a_dry_run_shows_what_the_budgets_leave_and_writes_nothing(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("search", *TINY, "--budget", "macs<=60%", "--budget", "steps(2)<=90%", "--dry-run")
    code, out, err = run_cli(capsys, *arguments)
    assert code == 0, err
    for word in ("smallest", "full", "expected", "satisfiable", "macs<=60%", "steps(2)<=90%", "estimated time"):
        assert word in out
    code, out, err = run_cli(capsys, *arguments, "--json")
    value = json.loads(out)
    assert [row["satisfiable"] for row in value["budgets"]] == [True, True]
    assert all(row["smallest"] < row["maximum"] < row["full"] for row in value["budgets"])
    assert value["estimated_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_what_cannot_be_met_says_no(capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "search", *TINY, "--budget", "macs<=1k", "--dry-run", "--json")
    assert code == 2
    (row,) = json.loads(out)["budgets"]
    assert not row["satisfiable"]
    assert row["smallest"] > 1000


def test_the_paper_recipe_over_its_budget_is_saved_and_ends_with_3(capsys: Capture, tmp_path: Path) -> None:
    options = ("--recipe", "paper", "--budget", "macs<=30%", "--penalty", "0.1", "--json")
    code, out, err = run_cli(capsys, "search", *TINY, *options, "--out", tmp_path / "p")
    assert code == 3, err
    summary = json.loads(out)
    assert [budget["met"] for budget in summary["budgets"]] == [False]
    assert set(summary["phases"]) == {"warm-up", "search", "choose"}, "no race and no finish"
    assert (tmp_path / "p" / "weights.safetensors").exists()
    assert run_cli(capsys, "search", "--out", tmp_path / "p", "--resume")[0] == 3


def test_a_fixed_architecture_is_trained_with_the_same_records(capsys: Capture, tmp_path: Path) -> None:
    options = TINY[2:]
    arguments = (*options, "--architecture", "full", "--out", tmp_path / "t", "--json")
    code, out, err = run_cli(capsys, "train", TINY[1], *arguments)
    assert code == 0, err
    summary = json.loads(out)
    assert summary.keys() >= KEYS
    assert summary["budgets"] == []
    records = [json.loads(line) for line in (tmp_path / "t" / "records.jsonl").read_text().splitlines()]
    assert {record["phase"] for record in records} == {"finish"}
    assert {"loss", "accuracy", "lr", "validation_accuracy"} <= records[-1].keys()
    assert "resnet-7" in refused(capsys, "train", TINY[1], *options, "--architecture", "resnet-7")


def test_the_time_limit_is_kept(capsys: Capture, tmp_path: Path) -> None:
    begun = time.monotonic()
    options = ("--budget", "macs<=60%", "--epochs", "10000", "--max-time", "4s", "--out", tmp_path / "a", "--json")
    code, out, err = run_cli(capsys, "search", *TINY, *options)
    assert code == 0, err
    assert json.loads(out)["budgets"][0]["met"]
    assert time.monotonic() - begun < 20


def test_settings_come_from_a_file_and_the_command_line_rules(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'space = "resnet-fabric:width=2,channels=2"\ndata = "embedded:limit=64,size=8"\nbudgets = ["macs<=1"]'
    )
    options = ("search", "--config", path, "--dry-run", "--json")
    assert "width=2" in json.loads(run_cli(capsys, *options)[1])["space"]
    code, out, _ = run_cli(capsys, *options, "--budget", "macs<=90%")
    assert code == 0
    assert json.loads(out)["budgets"][0]["budget"] == "macs<=90%"
    path.write_text("colour = 1")
    assert "'colour' is not a setting" in refused(capsys, *options)
    path.write_text("epochs =")
    assert "is not TOML" in refused(capsys, *options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--budget", "macs<=12 xs"], "12 xs"),
        (["--budget", "macs<=-5M"], "above zero"),
        (["--budget", "flops<=5M"], "flops"),
        (["--budget", "macs"], "not a budget"),
        (["--budget", "macs<=1k"], "cannot be met"),
        (["--budget", "macs<=60%", "--budget", "macs<=50%"], "same cost"),
        (["--budget", "raising<=3", "--cost", "tests.small_runs:raising"], "ZeroDivisionError"),
        (["--budget", "tests.small_runs:not_a_number<=3"], "nan"),
        (["--budget", "tests.small_runs:late<=12"], "nan"),
        (["--budget", "none:cost<=3"], "none"),
        (["--space", "flat-fabric"], "flat-fabric"),
        (["--space", "resnet-fabric:width=-1"], "-1"),
        (["--space", "neural-fabric:task=segmentation,width=2,scales=3,filters=2"], "segmentation"),
        (["--data", "imagenet"], "imagenet"),
        (["--data", "embedded:colour=red"], "colour"),
        (["--data", "cifar10"], "cifar10"),
        (["--data", "cifar10", "--data-root", "no/such/folder"], "no/such/folder"),
        (["--data", "folder"], "path"),
        (["--data", "folder:path=no/such/folder"], "no/such/folder"),
        (["--recipe", "slow"], "slow"),
        (["--epochs", "0"], "epochs"),
        (["--epochs", "inf"], "epochs"),
        (["--groups", "1"], "groups"),
        (["--batch-size", "0"], "batch-size"),
        (["--batch-size", "1"], "groups"),
        (["--seed", "-1"], "seed"),
        (["--seed", "1" + 30 * "0"], "seed"),
        (["--max-time", "soon"], "soon"),
        (["--lr-scale", "0"], "lr-scale"),
        (["--lr-scale", "-1"], "lr-scale"),
        (["--lr-scale", "nan"], "lr-scale"),
        (["--device", "abacus"], "abacus"),
        (["--config", "no/such.toml"], "no/such.toml"),
        (["--resume"], "--out"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUDGETNET_DATA", raising=False)
    defaults = [] if "--budget" in options else ["--budget", "macs<=60%"]
    assert said in refused(capsys, "search", *TINY, *defaults, *options)
    assert not list(tmp_path.rglob("summary.json"))


def images(folder: Path, sizes: tuple[int, ...] = (8,)) -> Path:
    generator = np.random.default_rng(0)
    for label, shade in (("dark", 40), ("light", 200)):
        (folder / label).mkdir(parents=True)
        for i in range(24):
            side = sizes[i % len(sizes)]
            pixels = np.clip(generator.normal(shade, 20, (side, side, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{i}.png")
    return folder


def test_a_folder_of_images_is_searched_and_its_faults_are_said(capsys: Capture, tmp_path: Path) -> None:
    folder = images(tmp_path / "good")
    common = ("search", "--space", TINY[1], "--epochs", "2", "--batch-size", "8", "--quiet", "--budget", "params<=50%")
    code, out, err = run_cli(capsys, *common, "--data", f"folder:path={folder}", "--out", tmp_path / "a", "--json")
    assert code == 0, err
    assert json.loads(out)["test_accuracy"] is None
    (folder / "light" / "3.png").write_bytes(b"no image")
    assert "3.png" in refused(capsys, *common, "--data", f"folder:path={folder}", "--out", tmp_path / "b")
    mixed = images(tmp_path / "mixed", (8, 9))
    code, out, err = run_cli(capsys, *common, "--data", mixed, "--out", tmp_path / "c", "--json")
    assert code == 0, err
    # images of unequal size are brought to one, which the run records
    assert len(json.loads((tmp_path / "c" / "data.json").read_text())["input_shape"]) == 3
    (folder / "empty").mkdir()
    assert "empty" in refused(capsys, *common, "--data", f"folder:path={folder}", "--out", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_diverging_run_says_where_and_goes_on_with_a_lower_rate(capsys: Capture, tmp_path: Path) -> None:
    options = (*TINY, "--budget", "macs<=60%", "--out", tmp_path / "a")
    sentence = refused(capsys, "search", *options, "--lr-scale", "1e30")
    assert "in step" in sentence
    assert "--lr-scale" in sentence
    code, out, err = run_cli(capsys, "search", *options, "--resume", "--lr-scale", "0.3", "--json")
    assert code == 0, err
    assert json.loads(out)["budgets"][0]["met"]


def test_torch_threads_are_left_alone(capsys: Capture) -> None:
    before = torch.get_num_threads()
    run_cli(capsys, "search", *TINY, "--dry-run")
    assert torch.get_num_threads() == before
