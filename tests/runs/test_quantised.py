"""A search under a budget for the int8 file, from the command line to the file that is exported."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from torch.nn import functional as F

import budgetnet
from budgetnet.budgets.certificate import Certificate
from budgetnet.data import load as load_data
from budgetnet.export import open_model
from budgetnet.records.results import MetricDescription
from budgetnet.runs.closing import _budget_result
from budgetnet.runs.quantised import scored
from budgetnet.runs.stored import INT8_FILE
from tests.small_runs import TINY, mlp, refused, run_cli, vectors

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from budgetnet.cli import main

    out = tmp_path_factory.mktemp("runs") / "int8"
    budget = "file_size(precision=int8)<=80%"
    assert main(["search", *TINY, "--budget", budget, "--int8-drop", "60", "--out", str(out), "--quiet"]) == 0
    return out


def read(run: Path, name: str) -> Any:
    return json.loads((run / name).read_text())


def test_the_int8_file_is_certified_with_its_accuracy(run: Path) -> None:
    certificate, summary = read(run, "certificate.json"), read(run, "summary.json")
    entry = certificate["budgets"][0]
    assert entry["how"]["precision"] == "int8"
    assert (run / INT8_FILE).stat().st_size < entry["measured"] <= entry["maximum"]
    score = certificate["int8"]
    assert score["fp32"] == pytest.approx(summary["validation_accuracy"])
    assert score["int8"] == summary["int8_validation"]
    assert score["drop"] == pytest.approx(100 * (score["fp32"] - score["int8"]))
    assert (score["allowed"], score["holds"], certificate["holds"]) == (60, True, True)
    assert INT8_FILE in certificate["checksums"]
    assert summary["budgets"][0]["met"]
    assert 0 <= summary["int8_test"] <= 1
    assert "int8 file" in (run / "report.html").read_text()


def test_the_accuracy_is_that_of_the_file_on_the_validation_data(run: Path) -> None:
    data = load_data(read(run, "config.json")["config"]["data"]).validation
    logits = open_model(run / INT8_FILE)(data.inputs.float())
    right = float((logits.argmax(1) == data.targets).float().mean())
    assert right == pytest.approx(read(run, "summary.json")["int8_validation"], abs=2e-3)
    kinds = {tensor.data_type for tensor in onnx.load(run / INT8_FILE).graph.initializer if len(tensor.dims) == 4}
    assert kinds == {onnx.TensorProto.INT8}


def test_a_run_and_its_file_are_certified_again(run: Path, tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "certify", run)
    assert code == 0, err
    assert "int8 drop <= 60 points" in out
    assert "precision int8" in out
    code, out, err = run_cli(
        capsys, "export", run, "--precision", "int8", "--int8-drop", "60", "-o", tmp_path / "a.onnx"
    )
    assert code == 0, err
    assert "validation accuracy" in out
    model = open_model(tmp_path / "a.onnx")
    images = load_data("embedded").validation.inputs[:8]
    if tuple(images.shape[1:]) == model.description.input_shape:
        given = images.float()
        assert np.allclose(model(given), open_model(run / INT8_FILE)(given), atol=1e-5), "calibrated on the same data"
    code, out, err = run_cli(capsys, "certify", tmp_path / "a.onnx", "--budget", "file_size(precision=int8)<=1MB")
    assert code == 0, err
    assert "precision int8" in out


def test_a_drop_that_is_not_allowed_fails(run: Path, tmp_path: Path, capsys: Capture) -> None:
    """Of a file that was not changed but whose drop is beyond what a certificate allows."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    certificate = read(copy, "certificate.json")
    certificate["int8"] |= {"drop": 2.0, "allowed": 1.0, "holds": False}
    (copy / "certificate.json").write_text(json.dumps(certificate))
    code, out, _ = run_cli(capsys, "certify", copy)
    assert code == 1
    assert "does not hold: int8 drop <= 1 points: 2.00" in out
    assert out.rstrip().endswith("the certificate does not hold")


def test_what_no_int8_file_is(run: Path, tmp_path: Path, capsys: Capture) -> None:
    assert "ONNX files" in refused(capsys, "export", run, "--precision", "int8", "--format", "safetensors")
    assert "out of range" in refused(capsys, "search", *TINY, "--int8-drop", "-1", "--out", tmp_path / "x")
    assert "fp32 or int8" in refused(
        capsys, "search", *TINY, "--budget", "file_size(precision=int4)<=80%", "--out", tmp_path / "x"
    )
    words = refused(capsys, "export", run, "--precision", "int8", "--int8-drop", "-200", "-o", tmp_path / "b.onnx")
    assert "nothing was written" in words
    assert not (tmp_path / "b.onnx").exists()


def test_the_drop_follows_the_direction_of_the_metric() -> None:
    better, lower = MetricDescription(), MetricDescription("mse", higher_is_better=False)
    assert scored(0.9, 0.885, 1.0, better).drop == pytest.approx(1.5)
    assert not scored(0.9, 0.885, 1.0, better).holds
    assert scored(0.9, 0.885, 2.0, better).holds
    assert scored(0.5, 0.4, 1.0, lower).drop == pytest.approx(-10)
    assert not scored(0.9, float("nan"), 1.0, better).holds


def test_a_budget_for_a_bad_int8_file_is_not_met(run: Path) -> None:
    certificate = Certificate.from_json(read(run, "certificate.json"))
    assert certificate.int8 is not None
    worse = replace(certificate, int8=replace(certificate.int8, holds=False))
    entry = certificate.budgets[0]
    assert [_budget_result(entry, each).met for each in (certificate, worse)] == [True, False]
    plain = replace(entry, how={**entry.how, "precision": "fp32"})
    assert _budget_result(plain, worse).met


def test_a_run_on_data_of_ones_own_gets_its_int8_file_by_a_budget(capsys: Capture, tmp_path: Path) -> None:
    """The folder does not hold the training data, so that the file is made by the run; a regression has no accuracy."""
    inputs, kind = vectors(96)
    sets = (inputs, F.one_hot(kind).float())
    given = {"epochs": 1, "batch_size": 32, "loss": "mse", "quiet": True}
    budgetnet.search(mlp(), sets, sets, budgets="macs<=80%", out=tmp_path / "a", **given)
    assert "search with a budget such as file_size(precision=int8)<=80%" in refused(
        capsys, "export", tmp_path / "a", "--precision", "int8"
    )
    _, out, _ = run_cli(capsys, "export", tmp_path / "a", "-o", tmp_path / "a.onnx")
    assert out.rstrip().endswith(" inputs"), "vectors are no images"
    budget = {"budgets": "file_size(precision=int8)<=90%", "int8_drop": 500.0}
    result = budgetnet.search(mlp(), sets, sets, out=tmp_path / "b", **budget, **given)
    difference = open_model(tmp_path / "b" / INT8_FILE)(inputs) - result.predict(inputs)
    assert float(difference.abs().mean()) < 0.2
    for name in ("summary.json", "records.jsonl", "certificate.json", "report.html"):
        assert "accuracy" not in (tmp_path / "b" / name).read_text().lower(), name
