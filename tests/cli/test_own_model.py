"""A model of the user's on the command line: described, searched from a checkpoint, resumed, certified, exported."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.models import resnet_for
from tests.small_runs import TINY, refused, run_cli

Capture = pytest.CaptureFixture[str]
MODEL = "tests.models:resnet_for:width=6"
SETTINGS = [value for i, value in enumerate(TINY) if "--space" not in TINY[max(0, i - 1) : i + 1]]
SEARCH = ("search", "--model", MODEL, *SETTINGS, "--budget", "macs<=60%")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    torch.manual_seed(3)
    save_file(resnet_for((1, 8, 8), 10, 6).state_dict(), path)
    return path


def test_a_model_is_described(capsys: Capture) -> None:
    model = resnet_for((3, 32, 32), 10, 6)
    code, out, err = run_cli(capsys, "describe", MODEL, "--cost", "params", "--cost", "macs", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["params"] == found["costs"]["params"]["full"] == sum(p.numel() for p in model.parameters())
    assert 0 < found["costs"]["macs"]["smallest"] < found["costs"]["macs"]["full"]
    assert sum(row["share_of_macs"] for row in found["rows"]) == pytest.approx(1)
    assert {row["kind"] for row in found["rows"]} == {"bundle", "branch", "fixed"}
    assert all(row["reason"] for row in found["rows"] if row["kind"] == "fixed" and row["macs"])
    code, out, err = run_cli(capsys, "describe", MODEL)
    assert code == 0, err
    assert all(word in out for word in ("layers.0.conv1", "bundle", "architectures", "smallest", "size"))


def test_a_model_may_bring_its_example_inputs(capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "describe", "tests.models:encoder_with_inputs", "--json")
    assert code == 0, err
    assert "self_attn" in out


def test_a_model_is_searched_from_a_checkpoint_certified_and_exported(
    capsys: Capture, tmp_path: Path, weights: Path
) -> None:
    run = tmp_path / "run"
    code, out, err = run_cli(capsys, *SEARCH, "--weights", weights, "--out", run, "--json")
    assert code == 0, err
    assert json.loads(out)["budgets"][0]["met"]
    for more in ((), ("--model", MODEL)):
        code, out, err = run_cli(capsys, "certify", run, "--json", *more)
        assert code == 0, (out, err)
        assert json.loads(out)["budgets"][0]["holds"]
    code, out, err = run_cli(capsys, "export", run, "--format", "onnx", "--json")
    assert code == 0, err
    assert json.loads(out)["largest_difference"] < 1e-4


def test_an_interrupted_search_goes_on_with_the_model_named_again(capsys: Capture, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "budgetnet", *SEARCH, "--out", str(run)]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < limit and not list(run.glob("checkpoints/*.checkpoint")):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert MODEL.rpartition(":")[0] in refused(capsys, "search", "--resume", "--out", run)
    code, out, err = run_cli(capsys, "search", "--model", MODEL, "--resume", "--out", run, "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["budgets"][0]["met"]


def test_a_checkpoint_that_does_not_fit_is_told_in_a_sentence(capsys: Capture, tmp_path: Path, weights: Path) -> None:
    state = resnet_for((1, 8, 8), 10, 6).state_dict()
    del state["bn1.weight"]
    torch.save({"state_dict": {**state, "fc.weight": torch.zeros(5, 12), "extra": torch.zeros(1)}}, tmp_path / "w.pt")
    (tmp_path / "text.pt").write_text("no tensors")
    torch.save([1, 2], tmp_path / "list.pt")
    said = refused(capsys, "describe", MODEL, "--input", "1x8x8", "--weights", tmp_path / "w.pt")
    assert "missing bn1.weight; unexpected extra; misshapen fc.weight (5×12, the model has 10×12)" in said
    for name, part in (("text.pt", "no tensors that can be read safely"), ("list.pt", "no state_dict of tensors")):
        assert part in refused(capsys, "describe", MODEL, "--weights", tmp_path / name)
    assert "is none" in refused(capsys, "describe", "resnet-fabric", "--weights", weights)
    assert "both given" in refused(capsys, *SEARCH, "--space", "resnet-fabric")


def test_checkpoints_of_wrapped_and_tied_models_are_understood(tmp_path: Path) -> None:
    from budgetnet.spaces.weights import load_weights

    model, other = (resnet_for((1, 8, 8), 10, 6) for _ in range(2))
    torch.save({f"module.{name}": tensor for name, tensor in other.state_dict().items()}, tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    state = {name: tensor + 1 for name, tensor in tied.state_dict().items() if name != "1.weight"}
    save_file(state, tmp_path / "tied.safetensors")
    load_weights(tied, tmp_path / "tied.safetensors")
    assert torch.equal(tied[1].weight, state["0.weight"])


def test_several_budgets_make_a_family_from_one_importance_pass(capsys: Capture, tmp_path: Path, weights: Path) -> None:
    out = tmp_path / "family"
    given = ("search", "--model", MODEL, *SETTINGS, "--weights", weights, "--out", out)
    family = ("--budgets", "macs<=60%", "macs<=40% & params<=90%")
    code, said, err = run_cli(capsys, *given, *family)
    assert code == 0, err
    folders = [out / "macs-60pct", out / "macs-40pct-params-90pct"]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert [path.name for path in out.glob("*.safetensors")] == ["importance.safetensors"]
    for summary, folder in zip(summaries, folders, strict=True):
        assert json.loads((folder / "certificate.json").read_text())["holds"]
        for budget in summary["budgets"]:
            assert budget["value"] <= budget["maximum"]
    assert all(text in said for text in ("macs<=60%", "macs<=40% & params<=90%", "before: validation", "report.html"))
    page = (out / "report.html").read_text()
    assert page.count("as it came, before") == 2
    assert ">Validation accuracy against macs<" in page, "the curve"
    assert "--resume" in refused(capsys, *given, *family)
    code, again, err = run_cli(capsys, *given, *family, "--resume", "--json")
    assert (code, json.loads(again)) == (0, summaries)
    assert "both given" in refused(capsys, *given, *family, "--budget", "macs<=50%")
    assert "given twice" in refused(capsys, *given, "--budgets", "macs<=50%", "macs<=50%", "--dry-run")
