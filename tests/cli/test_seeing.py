"""`draw`, `report` and `watch` as commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from budgetnet.cli import commands
from budgetnet.errors import UserError
from tests.run_folders import make_run

SPACE = "resnet-fabric:width=2,channels=4"


def call(command: Any, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def error(result: Result) -> str:
    assert isinstance(result.exception, UserError)
    return str(result.exception)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "first")


def edges(path: Path) -> list[ElementTree.Element]:
    return [g for g in ElementTree.parse(path).iter() if "edge" in g.get("class", "").split()]


def test_draw_a_space_and_a_named_architecture(tmp_path: Path) -> None:
    assert call(commands.draw, SPACE, "-o", tmp_path / "full.svg").output == f"{tmp_path / 'full.svg'}\n"
    assert all("dropped" not in edge.get("class", "") for edge in edges(tmp_path / "full.svg"))
    call(commands.draw, SPACE, "--architecture", "resnet-14", "-o", tmp_path / "spine.svg")
    kept = {
        edge.get("data-name", "") for edge in edges(tmp_path / "spine.svg") if "dropped" not in edge.get("class", "")
    }
    assert kept == {
        edge.get("data-name") for edge in edges(tmp_path / "full.svg") if ".spine." in edge.get("data-name", "")
    }


def test_draw_a_run_its_schedule_and_an_earlier_epoch(run: Path, tmp_path: Path) -> None:
    call(commands.draw, run, "-o", tmp_path / "found.svg")
    drawn = edges(tmp_path / "found.svg")
    found = json.loads((run / "architecture.json").read_text())["kept"]
    assert {edge.get("data-name") for edge in drawn if "dropped" not in edge.get("class", "")} == set(found)
    assert all(edge.get("data-probability") for edge in drawn)
    call(commands.draw, run, "--epoch", 5, "-o", tmp_path / "early.svg")
    early = {edge.get("data-name"): edge.get("data-probability") for edge in edges(tmp_path / "early.svg")}
    assert early != {edge.get("data-name"): edge.get("data-probability") for edge in drawn}
    call(commands.draw, run, "--cost", "steps(2)", "-o", tmp_path / "schedule.svg")
    assert any(edge.get("data-tick") for edge in edges(tmp_path / "schedule.svg"))
    assert "no probabilities" in error(call(commands.draw, run, "--epoch", 1, "-o", tmp_path / "never.svg"))


def test_draw_an_architecture_file(run: Path, tmp_path: Path) -> None:
    call(commands.draw, run / "architecture.json", "-o", tmp_path / "a.svg")
    (tmp_path / "lone.json").write_bytes((run / "architecture.json").read_bytes())
    assert "--space" in error(call(commands.draw, tmp_path / "lone.json", "-o", tmp_path / "b.svg"))
    call(commands.draw, tmp_path / "lone.json", "--space", SPACE, "--input", "3x16x16", "-o", tmp_path / "b.svg")
    names = [
        {edge.get("data-name") for edge in edges(tmp_path / file) if "dropped" not in edge.get("class", "")}
        for file in ("a.svg", "b.svg")
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize("command", [commands.draw, commands.report])
def test_no_file_is_overwritten_silently(command: Any, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    out.write_text("precious")
    assert "--force" in error(call(command, run, "-o", out))
    assert out.read_text() == "precious"
    assert call(command, run, "-o", out, "--force").exit_code == 0
    assert out.read_text().startswith("<!doctype html>")


def test_report_of_a_folder_of_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", epochs=4)
    make_run(tmp_path / "runs" / "b", epochs=4)
    assert call(commands.report, tmp_path / "runs", "-o", tmp_path / "all.html").exit_code == 0
    assert "2 runs" in (tmp_path / "all.html").read_text()


def test_a_report_goes_into_the_folder_that_was_named(tmp_path: Path) -> None:
    """Never into a run inside it that the user did not name."""
    make_run(tmp_path / "runs" / "only", epochs=4)
    assert call(commands.report, tmp_path / "runs").output == f"{tmp_path / 'runs' / 'report.html'}\n"
    assert not (tmp_path / "runs" / "only" / "report.html").exists()


def test_bad_input_is_a_sentence(tmp_path: Path) -> None:
    assert "not a run folder" in error(call(commands.report, tmp_path))
    assert "not a run folder" in error(call(commands.draw, tmp_path, "-o", tmp_path / "a.svg"))
    assert "nonsense" in error(call(commands.draw, "nonsense", "-o", tmp_path / "a.svg"))
    assert ".pdf" in error(call(commands.draw, SPACE, "-o", tmp_path / "a.pdf"))
    assert "not a run folder" in error(call(commands.watch, tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [commands.draw, commands.report, commands.watch])
def test_help_teaches_with_an_example(command: Any) -> None:
    assert "budgetnet " + command.name in call(command, "--help").output


def test_watch_says_where_and_ends_on_interrupt(run: Path) -> None:
    code = (  # a test run in the background ignores the signal, and so would its children
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from budgetnet.cli.commands import watch; watch()"
    )
    command = [sys.executable, "-u", "-c", code, str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
