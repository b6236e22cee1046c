"""One reader for all files of others, one writer for all of ours."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from budgetnet.errors import UserError
from budgetnet.naming.files import (
    DEEPEST,
    LARGEST,
    TEMPORARY,
    Missing,
    read_bytes,
    read_json,
    read_lines,
    read_text,
    read_toml,
    write_file,
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)


MADE: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "not a regular file"),
    "folder": (Path.mkdir, "not a regular file"),
    "large": (sparse, "is larger than 64 MB"),
    "bytes": (lambda path: path.write_bytes(b'{"a": "\xff"}'), "is not UTF-8 text"),
    "torn": (lambda path: path.write_text('{"a": 1'), "does not hold JSON"),
    "deep": (lambda path: path.write_text(nested(100_000)), "nested deeper than 32 levels"),
    "rather deep": (lambda path: path.write_text(nested(DEEPEST + 2)), "nested deeper than 32 levels"),
    "twice": (lambda path: path.write_text('{"a": {"b": 1, "b": 2}}'), "the key 'b' is there twice"),
    "digits": (lambda path: path.write_text("1" * 5000), "does not hold JSON"),
    "surrogate": (lambda path: path.write_text('{"a": "\\ud800"}'), "does not hold JSON"),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_file_that_is_no_json_is_refused_in_one_sentence(kind: str, tmp_path: Path) -> None:
    make, message = MADE[kind]
    path = tmp_path / "file.json"
    make(path)
    with pytest.raises(UserError, match=message) as error:
        read_json(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_device_is_not_opened() -> None:
    with pytest.raises(UserError, match="not a regular file"):
        read_bytes(Path("/dev/zero"))


def test_a_link_is_followed_only_where_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("1")
    (tmp_path / "link").symlink_to("real")
    assert read_json(tmp_path / "link") == 1
    with pytest.raises(UserError, match="is a symbolic link"):
        read_json(tmp_path / "link", follow=False)
    (tmp_path / "dangling").symlink_to("absent")
    with pytest.raises(UserError, match="is a symbolic link"):
        read_text(tmp_path / "dangling", follow=False)
    assert issubclass(Missing, UserError)
    with pytest.raises(Missing, match="check the path"):
        read_text(tmp_path / "dangling")


def test_values_of_the_allowed_depth_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(nested(DEEPEST))
    assert json.dumps(read_json(tmp_path / "a")) == nested(DEEPEST)


def test_lines_end_at_the_first_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n')
    assert read_lines(path) == ([{"a": 1}, {"b": 2}], True)
    for tail in (b'{"c"', b"\xff\xfe\n", b"[" * 1000 + b"\n", b'{"a": 1, "a": 2}\n'):
        path.write_bytes(b'{"a": 1}\n' + tail)
        assert read_lines(path) == ([{"a": 1}], False)


def test_toml_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("epochs = 3\n")
    assert read_toml(path) == {"epochs": 3}
    for wrong in ("epochs =", f"a = {nested(40)}", f"a = {nested(5000)}"):
        path.write_text(wrong)
        with pytest.raises(UserError, match=r"a\.toml is (not TOML|nested)"):
            read_toml(path)


def test_a_path_with_a_null_character_is_refused() -> None:
    with pytest.raises(UserError, match="null"):
        read_bytes(Path("a\0b"))


def test_a_written_file_is_whole_and_has_the_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = write_file(tmp_path / "new" / "file", b"data")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"data"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "target").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be written"):
        write_file(folder / "target", b"data")
    assert [path.name for path in folder.iterdir()] == ["target"]


def test_a_file_is_replaced_only_if_that_is_wanted(tmp_path: Path) -> None:
    path = write_file(tmp_path / "file", b"mine")
    with pytest.raises(UserError, match="exists already"):
        write_file(path, b"other", replace=False)
    assert path.read_bytes() == b"mine"
    write_file(path, b"other")
    assert path.read_bytes() == b"other"
    assert not list(tmp_path.glob(f"{TEMPORARY}*"))


def test_a_link_is_replaced_and_what_it_led_to_stays(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"safe")
    (tmp_path / "link").symlink_to("outside")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "outside").read_bytes() == b"safe"
    assert not (tmp_path / "link").is_symlink()
