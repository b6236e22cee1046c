"""Every command and every block of code of the pages runs, or says that it needs what a test has not.

A page is walked from its first block to its last in an empty folder, with what it takes for granted (`GIVEN`). A block
after `<!-- needs: gpu -->`, `network` or `device` is left out. Searches are made small where a page does not say how
large they are.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import budgetnet
from budgetnet.cli import main
from tests.small_runs import TINY

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
BLOCK = re.compile(r"^(?:<!-- needs: (\w+) -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REASONS = {
    "gpu": r"torchrun|CUDA",
    "network": r"install|make demo|http:|tcp:|ssh|cifar10|lfw|BUDGETNET_DATA|import (wandb|mlflow)|ExecuTorch",
    "device": r"runtime=my_phone",
}
"""What a block may need, and what in it needs that."""
LANGUAGES = ("python", "console", "toml", "text")
SIZE = dict(zip(TINY[:-1:2], TINY[1::2], strict=True))
"""Options of a search that a page does not give."""

Space = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A block of a page: what it needs, its language and its text."""

    needs: str
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Lines of a console, those that go on in the next one joined."""
        return self.text.replace("\\\n", " ").splitlines()

    @property
    def typed(self) -> list[str]:
        """What people type."""
        return [line[2:] for line in self.lines if line.startswith("$ ")]

    @property
    def printed(self) -> list[str]:
        """What they should see."""
        return [line for line in self.lines if not line.startswith("$ ")]


def blocks(page: Path) -> list[Block]:
    """The blocks of a page."""
    return [Block(*found) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def photos(folder: Path, space: Space) -> None:
    """A folder of two classes, and label maps of the same names."""
    draw = np.random.default_rng(0)
    for number in range(48):
        pixels = draw.integers(0, 255, (20, 24, 3)).astype(np.uint8)
        place = folder / "photos" / ("forest", "sunset")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(place / f"{number}.png")


def maps(folder: Path, space: Space) -> None:
    """Images and label maps of the same names."""
    draw = np.random.default_rng(0)
    for name in ("photos", "maps"):
        (folder / name).mkdir()
    for number in range(24):
        labels = draw.integers(0, 3, (20, 24)).astype(np.uint8)
        Image.fromarray(labels).save(folder / "maps" / f"{number}.png")
        Image.fromarray(np.stack([80 * labels] * 3, 2)).save(folder / "photos" / f"{number}.png")


MODEL = """
from torch import nn


def convnet(input_shape=(1, 8, 8), classes=10):
    layers = [nn.Conv2d(input_shape[0], 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))
"""


def own_model(folder: Path, space: Space) -> None:
    """The reader's model and data in Python, and the model with its weights for the command line."""
    (folder / "my_nets.py").write_text(MODEL)
    model = runpy.run_path(str(folder / "my_nets.py"))["convnet"]()
    torch.save(model.state_dict(), folder / "weights.pt")
    images = budgetnet.data.load(SIZE["--data"])
    parts = {name: getattr(images, name) for name in ("train", "validation", "test")}
    space |= {name: (part.inputs.float() / 127.5 - 1, part.targets) for name, part in parts.items()}
    space |= {"model": model, "inputs": space["train"][0][:2]}


def finished_run(folder: Path, space: Space) -> None:
    """A run, and data for it."""
    assert main(["search", *TINY, "--budget", "macs<=80%", "--out", str(folder / "runs" / "a")]) == 0
    part = budgetnet.data.load(SIZE["--data"]).validation
    space |= {
        "inputs": part.inputs[:32],
        "targets": part.targets[:32],
        "loader": [(part.inputs[:32], part.targets[:32])],
    }


def exported(folder: Path, space: Space) -> None:
    """The file of that run."""
    assert main(["export", str(folder / "runs" / "a"), "-o", str(folder / "model.onnx")]) == 0


def placement(folder: Path, space: Space) -> None:
    """Which nodes are on the device."""
    (folder / "placement.json").write_text('{"device": ["g0b0", "g0b1"]}')


GIVEN: Mapping[str, Sequence[Callable[[Path, Space], None]]] = {
    "README": [photos, own_model],
    "costs": [finished_run, exported, placement],
    "your-data": [finished_run],
    "segmentation": [maps],
}
"""What pages take for granted."""


def run_command(line: str, folder: Path) -> int:
    """Runs a line of a console, small where it does not say how large."""
    words = shlex.split(line, comments=True)
    assert words[0] == "budgetnet", f"mark the block as needing something, or test it otherwise: {line}"
    if words[1] == "search" and not {"--resume", "--dry-run"} & set(words) and "macs<=50k" not in words:
        own = {"--space"} if "--model" in words else set()
        words += [word for option in SIZE.items() if option[0] not in {*words, *own} for word in option]
        words += ["--quiet"]
    return main(words[1:])


def run_console(block: Block, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs what people type, and looks for what they should see."""
    said = ""
    for line in block.typed:
        capsys.readouterr()
        code = run_command(line, folder)
        shown = capsys.readouterr()
        said += shown.out + shown.err
        assert code == (2 if any(text.startswith("error:") for text in block.printed) else 0), (line, said)
    assert [text for text in block.printed if text not in said] == []


def run_python(block: Block, folder: Path, space: Space, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs code, as a file if its first line names one; names stay for the blocks below."""
    capsys.readouterr()
    named = re.match(r"# (\w+\.py)\n", block.text)
    if named:
        (folder / named[1]).write_text(block.text, encoding="utf-8")
    exec(compile(block.text, "page", "exec"), space)  # noqa: S102
    said = capsys.readouterr().out.splitlines()
    assert [text for text in re.findall(r"  # prints (.*)", block.text) if text not in said] == []


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; what was imported from there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


RUN = [page for page in PAGES if any(b.language in ("python", "console") and not b.needs for b in blocks(page))]


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_everything_on_a_page_runs(page: Path, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space: Space = {"__name__": "page"}
    for given in GIVEN.get(page.stem, ()):
        given(empty, space)
    for block in blocks(page):
        if block.needs:
            continue
        if block.language == "python":
            run_python(block, empty, space, capsys)
        elif block.language == "console":
            run_console(block, empty, capsys)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_block_says_what_it_is(page: Path) -> None:
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks(page)), "every fence is a block"
    for block in blocks(page):
        assert block.language in LANGUAGES
        assert block.needs in ("", *REASONS)
        if block.language == "python":
            compile(block.text, page.name, "exec")
        if block.language == "toml":
            tomllib.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_mark_is_for_what_a_test_cannot_have(page: Path) -> None:
    """Not for what is slow: a marked block installs, fetches, reaches another machine, or names a device."""
    for block in blocks(page):
        assert not block.needs or re.search(REASONS[block.needs], block.text), block.text


def masked(text: str) -> set[str]:
    """The lines of an output without numbers, their units and how far they are apart."""
    return {re.sub(r"\s+", " ", re.sub(r"[\d.]+ ?[kM]?%?", "#", line)).strip() for line in text.splitlines()}


def test_the_readme_shows_what_a_search_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shown,) = [block for block in blocks(ROOT / "README.md") if "make demo" in block.text]
    assert main(["search", *TINY, "--budget", "macs<=40%", "--out", str(tmp_path / "run")]) == 0
    assert masked("\n".join(shown.printed)) <= masked(capsys.readouterr().out)
