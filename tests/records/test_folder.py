"""A run folder may come from anybody: whatever is wrong with a file is a sentence, and a row in the list of runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from budgetnet.errors import UserError
from budgetnet.naming.files import LARGEST, TEMPORARY
from budgetnet.records.folder import RunFolder, find_runs, new_folder, read_run
from budgetnet.records.records import JsonLines, Record
from tests.small_runs import run_cli

OLD = Path(__file__).parent / "version-0.1.0"
JSON_FILES = ("config.json", "data.json", "summary.json", "certificate.json", "architecture.json")
WRONG = (None, True, -1, 1e400, 10**400, "\x1b[31m[/x]\u202e", [], {}, [[[]]], {"\x00": None})
"""What stands in the place of each field: every type, and values that break careless code."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "runs" / "run"))


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all fields; of a list the first entry stands for the others."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:1]
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if new is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return copy


def look(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    """All cheap commands over a folder: no traceback, no escape sequence, and exit codes that are documented."""
    for words in (["runs", run.parent], ["show", run]):
        code, out, err = run_cli(capsys, *words)
        assert code == 0 or (code == 2 and words[0] == "show"), (words, err)
        assert "\x1b" not in out + err
        assert code == 0 or err.startswith("error: ")
        assert len(err.splitlines()) <= 1, err
    read_run(run)


@pytest.mark.parametrize("name", JSON_FILES)
def test_each_field_of_each_file_may_be_wrong(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads((run / name).read_text())
    refusals = 0
    for place in places(value):
        for new in (*WRONG, ...):
            (run / name).write_text(json.dumps(changed(value, place, new)))
            problems = read_run(run).problems
            refusals += len(problems)
            assert all(name in problem for problem in problems)
            assert all(len(problem) < 500 for problem in problems)
            if new == WRONG[5]:
                look(capsys, run)
    assert refusals > 0 or name in ("architecture.json", "certificate.json"), "something is checked"


@pytest.mark.parametrize(
    ("place", "new", "message"),
    [
        (("budgets", 0, "maximum"), "much", "budgets[0].maximum is a text, not a number"),
        (("budgets", 1, "met"), 1, "budgets[1].met is a whole number, not true or false"),
        (("phases", "race"), -1, "phases.race is -1, not a number from 0"),
        (("macs",), 1.5, "macs is a number, not a whole number"),
        (("architecture", 0), None, "architecture[0] is null, not a text"),
        (("seed",), ..., "seed is missing"),
    ],
)
def test_the_field_that_is_wrong_is_named(place: tuple[str | int, ...], new: Any, message: str, run: Path) -> None:
    value = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(changed(value, place, new)))
    with pytest.raises(UserError) as error:
        RunFolder(run).summary()
    assert f"summary.json: {message}" in str(error.value)
    assert str(error.value).endswith("restore the file or run again")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)


REPLACED: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "large": sparse,
    "empty": lambda path: path.write_bytes(b""),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "deep": lambda path: path.write_text("[" * 50_000),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_each_file_may_be_something_else(kind: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (*JSON_FILES, "records.jsonl", "archive.jsonl"):
        (run / name).rename(run.parent / "kept")
        REPLACED[kind](run / name)
        look(capsys, run)
        if (run / name).is_dir():
            (run / name).rmdir()
        else:
            (run / name).unlink()
        (run.parent / "kept").rename(run / name)
    assert read_run(run).problems == ()


def test_a_link_to_a_whole_file_is_not_followed_either(run: Path) -> None:
    (run / "summary.json").rename(run / "other.json")
    (run / "summary.json").symlink_to("other.json")
    with pytest.raises(UserError, match="is a symbolic link"):
        RunFolder(run).summary()
    found = read_run(run)
    assert found.ended
    assert not found.finished


def test_the_lock_follows_no_link_and_truncates_nothing(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock").symlink_to(precious)
    with pytest.raises(UserError, match="cannot be written to"), RunFolder(folder).locked():
        pass
    (folder / ".lock").unlink()
    (folder / ".lock").write_text("somebody's")
    with RunFolder(folder).locked():
        assert (folder / ".lock").read_text() == "somebody's"
        with pytest.raises(UserError, match="another process is at work"), RunFolder(folder).locked():
            pass
    assert precious.read_text() == "precious"


def test_files_that_a_killed_process_left_are_removed(run: Path) -> None:
    (run / f"{TEMPORARY}0123").write_text("half a fi")
    with RunFolder(run).locked():
        assert not list(run.glob(f"{TEMPORARY}*"))
    assert RunFolder(run).finished


def test_records_follow_no_link_and_wait_for_no_pipe(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "records.jsonl").symlink_to(precious)
    with pytest.raises(UserError, match="cannot be written"):
        JsonLines(tmp_path / "records.jsonl")
    assert precious.read_text() == "precious"
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(UserError, match="cannot be written"):
        JsonLines(tmp_path / "pipe.jsonl")


def test_records_shorter_than_their_checkpoint_says_are_not_filled_with_zeros(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    record = Record("step", "search", 1, 1, 0.0, {"loss": 1.0})
    line = record.to_json() + "\n"
    path.write_text(line * 2 + line[:7])
    lines = JsonLines(path, position=10 * len(line))
    lines.write(record)
    lines.close()
    assert path.read_text() == line * 3
    JsonLines(path, position=len(line)).close()
    assert path.read_text() == line, "one that is long enough is cut where the checkpoint was made"


def test_a_folder_that_vanishes_is_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(run)
    shutil.rmtree(run)
    for read in (folder.summary, folder.data, folder.origin, folder.architecture):
        with pytest.raises(UserError, match="give the folder of a run"):
            read()
    assert folder.certificate() is None
    assert folder.records() == ([], False)
    with pytest.raises(UserError, match="is not a run folder"):
        read_run(run)
    assert run_cli(capsys, "show", run)[0] == 2


def test_runs_are_found_in_folders(run: Path) -> None:
    assert find_runs([run]) == [run]
    assert find_runs([run.parent, run]) == [run]
    assert find_runs([run.parent.parent]) == [run.parent.parent], "refused later, with its name"
    assert new_folder(run.parent) == run.parent / "run-1"
