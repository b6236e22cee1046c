"""The meter as a program: its arguments, its token, and the one file that is copied to a device."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from budgetnet.cli import main
from budgetnet.costs.latency.meter.program import TOKEN, write_program
from tests.meters import meter


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("one file") / "meter.pyz"
    write_program(path)
    return path


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **environment}
    command = [sys.executable, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=given, timeout=60)


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """A process that does not outlive a failed assertion."""
    try:
        yield
    finally:
        process.kill()


def test_the_token_is_made_at_each_start_and_shown_once(program: Path) -> None:
    tokens = set()
    for _ in range(2):
        environment = {name: value for name, value in os.environ.items() if name not in (TOKEN, "PYTHONPATH")}
        with (
            subprocess.Popen(
                [sys.executable, str(program), "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment,
                # a test run in the background of a shell ignores interrupts, and children would inherit that
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            ) as process,
            ended(process),
        ):
            assert process.stdout is not None
            assert "http://127.0.0.1:" in process.stdout.readline()
            found = re.match(r"token: (\S{32})\s", process.stdout.readline())
            assert found
            tokens.add(found[1])
            process.send_signal(signal.SIGINT)
            rest = "".join(process.communicate(timeout=20))
            assert process.returncode == 0
            assert found[1] not in rest
            assert "Traceback" not in rest
    assert len(tokens) == 2


def test_a_token_from_a_file_is_not_shown(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-thirty-two-characters\n")
    with meter(tmp_path, "--token-file", str(file)) as running:
        assert running.ask("GET", "/machine")[0] == 401, "the file comes before the environment"
        running.headers = {"Authorization": "Bearer a-token-of-thirty-two-characters"}
        assert running.ask("GET", "/machine")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "environment", "word"),
    [
        ((), {TOKEN: "short"}, "16 or more"),
        ((), {TOKEN: "with spaces in it, of course"}, "printable"),
        (("--token-file", "/no/such/file"), {}, "No such file"),
        (("--port", "seven"), {}, "invalid int value"),
        (("--max-seconds", "0"), {}, "above zero"),
        (("--host", "203.0.113.7"), {TOKEN: "a-token-for-tests-only"}, "assign"),
    ],
)
def test_bad_input_is_one_sentence(
    program: Path, arguments: tuple[str, ...], environment: dict[str, str], word: str
) -> None:
    done = run(program, *arguments, **environment)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_a_device_without_a_runtime_is_told_what_to_install(program: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("raise ImportError(name='onnxruntime')\n")
    done = run(program, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "error: the meter needs onnxruntime on this machine: pip install numpy onnxruntime\n",
    )


def test_the_command_writes_the_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["meter", "--write", str(tmp_path / "meter.pyz")]) == 0
    assert "copy it" in capsys.readouterr().out
    assert stat.S_ISREG((tmp_path / "meter.pyz").stat().st_mode)
    done = run(tmp_path / "meter.pyz", "--help")
    assert done.returncode == 0
    assert "latency(target=http://HOST:8700)" in done.stdout


def test_the_command_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch on this device')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "budgetnet", "meter", "--write", "m.pyz"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_measuring_process_imports_no_torch() -> None:
    asked = "import sys, budgetnet.costs.latency.meter.child, budgetnet.costs.latency.timing; "
    asked += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr


def test_a_cost_is_no_file_whichever_was_imported_first() -> None:
    asked = "from budgetnet.costs.latency.meter import machine; from budgetnet.costs import latency, steps; "
    asked += "import budgetnet; print(callable(latency), callable(steps), budgetnet.costs.latency is latency)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True True True\n", done.stderr
