"""Every string of every file of a run and of every model file, one at a time and all at once: none is ever code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import pytest

import budgetnet
from benchmarks.fuzz import resealed
from budgetnet.cli import main
from budgetnet.errors import UserError
from budgetnet.pictures.watch import Watcher
from tests.security.test_no_file_is_code import PAYLOADS, made, replaced, sealed_safetensors, strings, trap

__all__ = ["made", "trap"]
OWN = {"structure.json": ("load",), "config.json": ("certify", "load"), "certificate.json": ("certify",)}
"""What looks names up in a file, besides the commands that only show it."""


def use(name: str, run: Path, out: Path) -> None:
    """One reader of a run: a command, or a function of Python; it may refuse, and may not fail otherwise."""
    if name == "load":
        with suppress(UserError):
            budgetnet.load(run)
    elif name == "watch":
        with suppress(UserError):
            Watcher([run]).now()
    else:
        words = {
            "runs": ["runs", str(run.parent)],
            "report": ["report", str(run), "-o", str(out / "a.html"), "--force"],
            "draw": ["draw", str(run), "-o", str(out / "a.svg"), "--force"],
            "export": ["export", str(run), "--format", "safetensors", "-o", str(out / "a.safetensors"), "--force"],
            "search": ["search", "--resume", "--out", str(run), "--quiet"],
            "sweep": ["sweep", str(run / "settings.toml"), "--out", str(run.parent), "--dry-run", "--quiet"],
        }
        assert main(words.get(name, [name, str(run)])) in (0, 1, 2, 3), name


@pytest.fixture
def run(made: Path, trap: Path, tmp_path: Path) -> Path:
    """A copy of the run, in a folder where a trap is set."""
    folder = tmp_path / "runs" / "run"
    folder.parent.mkdir()
    shutil.copytree(made, folder, ignore=shutil.ignore_patterns("*.pt2"))
    return folder


def test_every_string_of_a_run_alone(run: Path, trap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a string stands twice in a list, as edges and classes do, the first ones stand for the others."""
    for file in sorted(run.glob("*.json")):
        original = file.read_bytes()
        value = json.loads(original)
        for place in strings(value):
            if any(isinstance(key, int) and key > 3 for key in place):
                continue
            file.write_text(json.dumps(replaced(value, place, PAYLOADS[0])))
            for name in ("show", "runs", *OWN.get(file.name, ())):
                use(name, run, tmp_path)
                assert not trap.exists(), (file.name, place, name)
        file.write_bytes(original)
    assert "Traceback" not in capsys.readouterr().err


def test_all_strings_of_each_file_through_every_reader(
    run: Path, trap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    payload = PAYLOADS[2]
    (run / "settings.toml").write_text(f'space = "{payload}"\nbudgets = ["{payload}<=3"]\ncosts = ["{payload}"]\n')
    for file in sorted(run.glob("*.json")):
        original = file.read_bytes()
        value = json.loads(original)
        for place in strings(json.loads(original)):
            value = replaced(value, place, payload)
        file.write_text(json.dumps(value))
        for name in ("show", "runs", "load", "certify", "export", "draw", "report", "watch", "search", "sweep"):
            use(name, run, tmp_path)
            assert not trap.exists(), (file.name, name)
        file.write_bytes(original)
    assert "Traceback" not in capsys.readouterr().err


def variants(texts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Each text of the metadata as a payload, and each string inside those that are JSON."""
    for key, text in texts.items():
        yield key, PAYLOADS[0]
        with suppress(ValueError):
            value = json.loads(text)
            for place in strings(value):
                if place and not any(isinstance(part, int) and part > 3 for part in place):
                    yield key, json.dumps(replaced(value, place, PAYLOADS[0]))


def safetensors_texts(run: Path) -> tuple[dict[str, str], Callable[[str, str], None]]:
    """The metadata of the safetensors export, and what writes a changed text with a seal that fits."""
    data = (run / "model.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])

    def write(key: str, text: str) -> None:
        (run / "model.safetensors").write_bytes(data)
        sealed_safetensors(run, {key: text})

    return header["__metadata__"], write


def onnx_texts(run: Path) -> tuple[dict[str, str], Callable[[str, str], None]]:
    """The same of the ONNX export."""
    data = (run / "model.onnx").read_bytes()
    model = onnx.load_from_string(data)

    def write(key: str, text: str) -> None:
        changed = onnx.load_from_string(data)
        for entry in changed.metadata_props:
            entry.value = text if entry.key == key else entry.value
        (run / "model.onnx").write_bytes(resealed(changed.SerializeToString()))

    return {entry.key: entry.value for entry in model.metadata_props}, write


@pytest.mark.parametrize("texts_of", [safetensors_texts, onnx_texts])
def test_every_string_in_the_metadata_of_a_model_file(
    run: Path, trap: Path, capsys: pytest.CaptureFixture[str], texts_of: Any
) -> None:
    texts, write = texts_of(run)
    file = run / ("model.onnx" if texts_of is onnx_texts else "model.safetensors")
    for number, (key, text) in enumerate(variants(texts)):
        write(key, text)
        commands = [["predict", str(file), str(run / "0.png")]]
        commands += [["certify", str(file), "--budget", "file_size<=9MB"]] if number % 10 == 0 else []
        for words in commands:
            assert main(words) in (0, 1, 2), (key, text)
            assert not trap.exists(), (key, text)
    assert number > 5
    assert "Traceback" not in capsys.readouterr().err
