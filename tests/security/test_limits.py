"""Limits and one-line errors: images, spaces, arguments of costs, code of the user's that fails, the terminal."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from budgetnet.cli import main
from budgetnet.cli.options import check_threads
from budgetnet.costs import bind
from budgetnet.data.images import PIXELS, image_sizes, read_image
from budgetnet.errors import UserError
from budgetnet.records.folder import RunFolder
from budgetnet.runs.config import Config
from budgetnet.spaces import build
from budgetnet.spaces.named import find_architecture
from budgetnet.training import checkpoint
from tests.small_runs import mlp


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a refused command says on stderr."""
    assert main(list(words)) == 2
    return capsys.readouterr().err


def png(path: Path, width: int, height: int) -> Path:
    """A grey image of zeros, as small a file as it can be."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" * (width + 1) * height, 9)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
    return path


@pytest.mark.parametrize(("width", "height"), [(80_000_000, 1), (1, 70_000), (9000, 9000)])
def test_an_image_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, height: int
) -> None:
    """In a process with little memory: the pixels are never made."""
    file = png(tmp_path / "bomb.png", width, height)
    for read in (lambda: read_image(file), lambda: image_sizes([file])):
        with pytest.raises(UserError, match=f"has {width}×{height} pixels, more than"):
            read()
    monkeypatch.setenv(PIXELS, "many")
    with pytest.raises(UserError, match="whole number of pixels"):
        read_image(file)


def test_the_setting_allows_larger_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = png(tmp_path / "a.png", 40, 30)
    monkeypatch.setenv(PIXELS, "1000")
    with pytest.raises(UserError, match=PIXELS):
        read_image(file)
    monkeypatch.setenv(PIXELS, "1200")
    assert read_image(file, grey=True).shape == (1, 30, 40)


def test_only_the_first_frame_of_an_image_is_decoded(tmp_path: Path) -> None:
    frames = [Image.new("L", (5, 4), value) for value in (10, 200, 90)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif", grey=True).unique().tolist() == [10]


@pytest.mark.parametrize("command", [["search", "--dry-run"], ["sweep", "--dry-run", "--budgets", "macs<=50%"]])
def test_threads_beyond_a_multiple_of_the_cores_are_refused(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    most = max(64, 16 * (os.cpu_count() or 1))
    assert f"give at most {most}" in said(capsys, *command, "--threads", str(most + 1))
    check_threads(most)
    assert Config(threads=1000).threads == 1000  # a run of a larger machine still opens


@pytest.mark.parametrize("name", ["checkpoints", "pictures"])
def test_a_link_in_place_of_a_folder_of_a_run_is_not_followed(tmp_path: Path, name: str) -> None:
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    run.mkdir()
    checkpoint.save(elsewhere, 1, {"a": 1})
    (elsewhere / "1-image.png").write_bytes(b"secret")
    (run / name).symlink_to(elsewhere)
    before = sorted(elsewhere.iterdir())
    with pytest.raises(UserError, match="symbolic link"), RunFolder(run).locked():
        pass
    with pytest.raises(UserError, match="symbolic link"):
        RunFolder(run).read_bytes(f"{name}/1-image.png")
    assert checkpoint.load_latest(run / name) == (None, [])
    assert sorted(elsewhere.iterdir()) == before


def test_a_checkpoint_that_is_a_link_is_passed_over(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path / "elsewhere", 1, {"a": 1})
    (tmp_path / "checkpoints").mkdir()
    link = tmp_path / "checkpoints" / path.name
    link.symlink_to(path)
    assert checkpoint.load_latest(tmp_path / "checkpoints") == (None, [link])
    assert checkpoint.load_latest(tmp_path / "elsewhere") == ({"a": 1}, [])


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000, b'{"a": 1, "a": 2}'])
def test_architectures_and_placements_are_read_by_the_checked_reader(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(content)
    net = mlp()
    for read in (lambda: find_architecture(net, str(file)), lambda: bind(f"traffic({file})", net)):
        with pytest.raises(UserError, match=r"a\.json"):
            read()
    with file.open("wb") as large:
        large.truncate(2**27)
    for read in (lambda: find_architecture(net, str(file)), lambda: bind(f"traffic({file})", net)):
        with pytest.raises(UserError, match="larger than 64 MB"):
            read()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "a.png"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="not a regular file"):
        read_image(pipe)


@pytest.mark.parametrize(
    "text",
    [
        "resnet-fabric:width=99999999",
        "resnet-fabric:width=60000",
        "resnet-fabric:channels=65536",
        "resnet-fabric:channels=" + "9" * 40,
        "neural-fabric:width=60000",
        "neural-fabric:filters=65536",
    ],
)
def test_a_space_of_absurd_size_is_refused_before_it_is_built(text: str) -> None:
    with pytest.raises(UserError, match=r"more than \d+"):
        build(text, (3, 32, 32), 10)


@pytest.mark.parametrize("cost", ["latency(batch=999999999999)", "latency(threads=100000)", "peak_memory(99999999999)"])
def test_costs_take_no_absurd_arguments(cost: str) -> None:
    with pytest.raises(UserError, match=r"at most|1 to"):
        bind(cost, mlp())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "raise RuntimeError('first\\nsecond')",
            "mine:build raised RuntimeError: first; correct the builder",
        ),
        ("import sys; sys.exit(7)", "the space mine:build called exit"),
        ("return 3", "gave a int, not a SuperNetwork"),
    ],
)
def test_a_builder_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], body: str, words: str
) -> None:
    (tmp_path / "mine.py").write_text(f"def build():\n    {body}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert words in said(capsys, "cost", "mine:build")


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import sys\nsys.exit(3)\n", "called exit"),
        ("raise KeyError('x')\n", "raised KeyError"),
        ("def build(:\n", "raised SyntaxError"),
        ("build = dict.fromkeys\n", "raised TypeError"),
        ("class Meta(type):\n    __signature__ = 3\nclass build(metaclass=Meta): ...\n", "mine:build"),
    ],
)
def test_a_module_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], module: str, words: str
) -> None:
    (tmp_path / "mine.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    message = said(capsys, "cost", "mine:build")
    assert "mine" in message
    assert words in message
    assert message.count("\n") == 1


def test_a_message_is_one_bounded_line_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("\x1b[2J\x1b]0;owned\x07", "a\nb\nc", "x" * 100_000, "\u202eevil", "." * 5000):
        message = said(capsys, "cost", "resnet-fabric", "--architecture", text)
        assert message.count("\n") == 1
        assert len(message) < 2000
        assert "\x1b" not in message
        assert "\u202e" not in message


def test_debug_shows_the_traceback_and_the_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    plain = said(capsys, "cost", "resnet")
    assert "Traceback" not in plain
    told = said(capsys, "cost", "resnet", "--debug")
    assert "Traceback" in told
    assert told.endswith(plain)


def test_what_nobody_expected_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RecursionError("deep\ndeeper")

    monkeypatch.setattr("budgetnet.cli.cost.build", broken)
    message = said(capsys, "cost", "resnet-fabric")
    assert message == "error: RecursionError: deep; budgetnet did not expect this; --debug shows where\n"
    assert "Traceback" in said(capsys, "cost", "resnet-fabric", "--debug")


def test_the_memory_for_a_bomb_is_never_taken(tmp_path: Path) -> None:
    """With 4 GB of addresses, which torch alone nearly fills, the 80 million pixels would not fit."""
    file = png(tmp_path / "bomb.png", 80_000_000, 1)
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom budgetnet.data.images import read_image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    read_image(Path(sys.argv[1]))\nexcept ValueError as error:\n    print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 50_000)\n"
    )
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "80000000×1" in done.stdout
    assert done.stdout.endswith("True\n")
