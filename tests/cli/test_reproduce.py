"""`budgetnet reproduce`: a miniature table from its plan to its pictures, the list, the plan, and bad input."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from budgetnet.costs.units import show
from budgetnet.reproduce import REPRODUCTIONS, Method, Reproduction, Setting, catalogue, plan_of
from budgetnet.reproduce.catalogue import baseline, search
from budgetnet.reproduce.figures import draw_dynamics, dynamics_of, dynamics_table
from budgetnet.reproduce.outcome import write_outcome
from budgetnet.reproduce.published import PublishedRow, PublishedTable
from tests.small_runs import refused, run_cli

Capture = pytest.CaptureFixture[str]


@dataclass(frozen=True)
class Miniature(Reproduction):
    """A ResNet-8 of two channels, and searches in its fabric, on embedded data in a few steps."""

    def setting(self, scale: str) -> Setting:
        tiny = Setting("embedded:limit=256,size=8", (1, 8, 8), 10, 256, "fast", 0.5, channels=2, batch_size=64)
        return replace(tiny, channels=4) if scale == "full" else tiny

    def methods(self, scale: str) -> list[Method]:
        chosen = self.setting(scale)
        limits = [f"{cost}<=80%" for cost in self.costs]
        return [
            baseline(chosen, "ResNet-8", self.costs),
            search(chosen, "B-ResNet", chosen.resnets(1), limits, seeds=(0,)),
        ]


MINIATURE = Miniature(
    "miniature",
    "a table of this test",
    "nothing",
    (
        PublishedTable("table 8", "params", "# params (thousands)", 1e3, (PublishedRow("ResNet-8", "4.8", 12.3),)),
        PublishedTable("table 9", "steps(2,dfs)", "steps", 1.0, (PublishedRow("B-ResNet", "7.00", 45.6),)),
    ),
)


def test_a_whole_reproduction(capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REPRODUCTIONS, "miniature", MINIATURE)  # type: ignore[arg-type]
    monkeypatch.chdir(tmp_path)
    arguments = ("reproduce", "miniature", "--workers", 1, "--threads", 1, "--quiet", "--json")
    code, out, err = run_cli(capsys, *arguments)
    assert code == 0, err
    folder = tmp_path / "reproductions" / "miniature-reduced"
    value = json.loads(out)
    assert value == json.loads((folder / "table.json").read_text())
    assert (value["scale"], value["runs"], value["finished"]) == ("reduced", 3, 3)
    by_params, by_steps = (table["lines"] for table in value["tables"])

    fixed = by_params[0]
    assert fixed["published"]["accuracy"] == 12.3
    assert fixed["recomputed"] > 2 * fixed["ours"]["cost"] > 0
    summary = json.loads((folder / "runs" / fixed["ours"]["run"] / "summary.json").read_text())
    assert fixed["ours"]["test"] == 100 * summary["test_accuracy"]
    assert fixed["ours"]["cost"] == summary["params"] / 1e3

    assert [(line["model"], line["published"] is None, line["ours"] is None) for line in by_steps] == [
        ("B-ResNet", False, True),
        ("B-ResNet", True, False),
        ("ResNet-8", True, False),
    ]
    found = by_steps[1]["ours"]
    assert found["test"] is not None
    text = (folder / "table.md").read_text()
    assert "# miniature at reduced scale" in text
    assert "not the paper's" in text
    assert f"[{found['run']}](pictures/{found['run']}.svg)" in text
    picture = (folder / "pictures" / f"{found['run']}.svg").read_text()
    assert "tick" in picture
    charts = {f"{kind}-{cost}.svg" for kind in ("accuracy", "selection") for cost in ("params", "steps-2")}
    assert {path.name for path in folder.glob("*.svg")} == charts
    assert all(
        word in (folder / "selection-steps-2.svg").read_text() for word in ("validation", "accuracy, %", "B-ResNet")
    )

    code, again, err = run_cli(capsys, *arguments)
    assert (code, json.loads(again)) == (0, value), "nothing is run twice"
    code, said, err = run_cli(capsys, *arguments[:-2], "--out", folder.with_name("second"))
    assert code == 0, err
    assert f"copied from the tables beside this one: {fixed['ours']['run']}" in said
    copy = folder.with_name("second") / "runs" / fixed["ours"]["run"]
    assert (copy / "weights.safetensors").read_bytes() == (
        folder / "runs" / fixed["ours"]["run"] / "weights.safetensors"
    ).read_bytes()
    dynamics_come_from_records(folder / "runs" / found["run"], tmp_path)
    dynamics_say_what_the_runs_end_as(folder, found["run"])


def dynamics_come_from_records(run: Path, out: Path) -> None:
    rows = dynamics_of(run)
    assert {row["series"] for row in rows} == {"training loss", "entropy, bits per edge"}
    assert {row["phase"] for row in rows} >= {"search", "finish"}
    assert [path.name for path in draw_dynamics([("B-ResNet", run)], out)] == ["loss.svg", "entropy.svg"]
    lines = dynamics_table([("B-ResNet", run)]).splitlines()
    assert len(lines) == 2 + 10
    losses = [row["value"] for row in rows if row["series"] == "training loss"]
    assert f"| {losses[-1]:.3f} |" in lines[-1]


def dynamics_say_what_the_runs_end_as(folder: Path, run: str) -> None:
    plan, models = plan_of(MINIATURE.methods("reduced"), "here")
    value, _ = write_outcome(replace(MINIATURE, tables=()), "reduced", plan, models, folder)
    summary = json.loads((folder / "runs" / run / "summary.json").read_text())
    (ours,) = [one for one in value["dynamics"] if one["rows"] == dynamics_of(folder / "runs" / run)]
    assert ours["model"] == "B-ResNet"
    ends = [summary[name] for name in ("macs", "validation_accuracy", "test_accuracy")]
    assert [ours[name] for name in ("macs", "validation", "test")] == ends
    text = (folder / "table.md").read_text()
    assert f"- B-ResNet, at the end: {show(ends[0], 'macs')} multiply-adds; {ends[1]:.2%} validation" in text


def test_a_dry_run_prints_every_run_without_data(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BUDGETNET_DATA", raising=False)
    options = ("--scale", "full", "--dry-run", "--quiet")
    code, out, err = run_cli(capsys, "reproduce", "cifar100-steps", *options)
    assert code == 0, err
    assert "55 runs: 50 searches, 5 fixed networks" in out
    assert len([line for line in out.splitlines() if line.startswith("B-ResNet")]) == 50
    runs = json.loads(run_cli(capsys, "reproduce", "cifar100-steps", *options, "--batch-size", 8, "--json")[1])
    assert len({run["run"] for run in runs}) == 55
    assert {run["config"]["data"] for run in runs} == {"cifar100"}
    assert {run["config"]["batch_size"] for run in runs} == {8}
    assert list(tmp_path.iterdir()) == []


def test_the_list_says_how_many_runs_and_how_long(capsys: Capture) -> None:
    code, out, err = run_cli(capsys, "reproduce", "part-labels", "--list", "--quiet")
    assert code == 0, err
    assert "part-labels" in out
    assert "estimate" in out
    rows = json.loads(run_cli(capsys, "reproduce", "part-labels", "--list", "--quiet", "--json")[1])
    assert [(row["table"], row["scale"], row["runs"]) for row in rows] == [("part-labels", "reduced", 3)]
    assert rows[0]["estimated_seconds"] > 60


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["table-9"], "'table-9'"),
        ([], "cifar10-macs"),
        (["dynamics", "--scale", "huge"], "huge"),
        (["dynamics", "--engine", "dask"], "--address"),
        (["dynamics", "--workers", "1000"], "1000 workers"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "reproduce", *options, "--quiet")


def test_the_help_names_every_option_that_the_readme_of_a_reproduction_needs(capsys: Capture) -> None:
    out = run_cli(capsys, "reproduce", "--help")[1]
    assert all(option in out for option in ("--list", "--dry-run", "--scale", "--engine"))
    assert catalogue.find("dynamics").tables == ()
