"""Values that a run says about itself: to JSON and back, and a run folder of version 0.1.0."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import budgetnet
from budgetnet.errors import UserError
from budgetnet.pictures.report.answer import answer
from budgetnet.pictures.report.limits import limits
from budgetnet.records.folder import RunFolder, read_run
from budgetnet.records.records import KINDS
from budgetnet.records.results import DataDescription, MetricDescription, Origin, Summary
from budgetnet.runs.config import of_run
from tests.small_runs import run_cli
from tests.summaries import make_budget, make_summary

OLD = Path(__file__).parent / "version-0.1.0"
"""A run of budgetnet 0.1.0: `budgetnet search`, one epoch on 100 images of 8×8."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(OLD, tmp_path_factory.mktemp("runs") / "old"))


def test_a_summary_goes_to_json_and_back() -> None:
    whole = make_summary(budgets=(make_budget(), make_budget("size", 2e6, 1e6, "B")), test_mean_iou=0.25)
    assert Summary.from_json(json.loads(json.dumps(whole.to_json())), "here") == whole
    assert "validation_mean_iou" not in whole.to_json(), "only where it is known"
    assert not whole.met
    assert whole.budgets[1].share == 2
    assert (whole.cost("size"), whole.cost("macs"), whole.cost("params"), whole.cost("x")) == (2e6, 900, 100, None)
    assert make_summary().cost("macs") == 1000, "counted where there is no budget on it"


def test_a_test_score_is_put_in_and_taken_out() -> None:
    tested = make_summary().with_test(0.5, 0.4)
    assert (tested.test_score, tested.test_mean_iou) == (0.5, 0.4)
    assert tested.with_test(None) == make_summary()


def test_the_data_say_their_metric_and_clean_names() -> None:
    about = DataDescription(
        "own", "own", ("a", "b"), (3, 8, 8), metric=MetricDescription("error", higher_is_better=False)
    )
    assert DataDescription.from_json(json.loads(json.dumps(about.to_json())), "here") == about
    dirty = {**about.to_json(), "classes": ["a\x1b[2J", "[/b]"]}
    assert DataDescription.from_json(dirty, "here").classes == ("a\ufffd[2J", "[/b]")
    with pytest.raises(UserError, match=r"input_shape\[0\] is 0, not a number from 1"):
        DataDescription.from_json({**about.to_json(), "input_shape": [0]}, "here")


def test_every_file_of_an_old_run_is_read(old: Path) -> None:
    folder = RunFolder(old)
    summary, data, origin = folder.summary(), folder.data(), folder.origin()
    raw = {path.name: json.loads(path.read_text()) for path in OLD.glob("*.json")}
    assert summary.to_json() == raw["summary.json"], "nothing is lost and nothing is added"
    assert [budget.cost for budget in summary.budgets] == ["macs", "size"]
    assert data.classes == tuple(raw["data.json"]["classes"])
    assert data.metric == MetricDescription("accuracy", higher_is_better=True)
    assert origin == Origin.from_json(origin.to_json(), "again")
    assert of_run(folder).budgets == ("macs<=90%", "size<=1MB")
    records, whole = folder.records()
    assert whole
    assert {record.kind for record in records} == set(KINDS), "each kind of record is documented, and none is not"
    archive, whole = folder.archive()
    assert whole
    lines = (OLD / "archive.jsonl").read_text().splitlines()
    assert [entry.kept for entry in archive] == [json.loads(line)["kept"] for line in lines]
    assert read_run(old).problems == ()


def test_an_old_run_opens_in_python(old: Path) -> None:
    result = budgetnet.load(old)
    assert result.met
    assert [edge.name for edge in result.architecture.live()] == list(result.summary.architecture)
    assert result.model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_an_old_run_opens_on_the_command_line(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_cli(capsys, "runs", old.parent)
    assert code == 0
    assert "13.60%" in out
    code, out, _ = run_cli(capsys, "show", old)
    assert code == 0
    assert re.search(r"^validation accuracy +13.60%", out, re.M)
    assert re.search(r"^test accuracy +14.60%", out, re.M)
    assert run_cli(capsys, "certify", old)[0] == 0
    run = read_run(old)
    assert "fits its budget" in answer(run, limits(run, None)).sentence


def test_scores_are_stored_under_the_name_of_their_metric() -> None:
    metric = MetricDescription("mae", higher_is_better=False, format=".3g")
    summary = make_summary(validation_score=1.25, test_score=None, metric=metric)
    stored = json.loads(json.dumps(summary.to_json()))
    assert stored["validation_mae"] == 1.25
    assert not [name for name in stored if "accuracy" in name or "score" in name]
    assert Summary.from_json(stored, "here") == summary
    assert summary.scores() == {"validation": "1.25"}
    overlap = make_summary(validation_score=0.5, validation_mean_iou=0.5, metric=MetricDescription("mean_iou"))
    assert Summary.from_json(overlap.to_json(), "here") == overlap


def test_a_format_from_a_file_is_only_a_format() -> None:
    assert MetricDescription(format="{0.__class__}").show(0.5) == "0.5"
    assert MetricDescription().show(0.91304, 1) == "91.3%"
    assert MetricDescription(format=".3f").show(0.5, 1) == "0.500"
    assert MetricDescription("top5").show(None) == ""
