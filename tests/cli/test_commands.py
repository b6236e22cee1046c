"""The command line answers questions about itself without torch, and what it declares is what the commands take."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import budgetnet
from budgetnet.cli import certifying, commands, cost, main, reproducing, runs, searching, seeing, sweeping
from budgetnet.cli.commands import choices
from budgetnet.costs.counts import ACCOUNTINGS
from budgetnet.costs.steps import ALLOCATIONS
from budgetnet.export import FORMATS
from budgetnet.export.int8 import PRECISIONS
from budgetnet.pictures.draw import THEMES
from budgetnet.reproduce import SCALES
from budgetnet.runs.sweep.plan import AXES
from budgetnet.training import device
from budgetnet.training.optimization import OPTIMIZERS, SCHEDULES

WITHOUT_TORCH = """
import sys
from budgetnet.cli import main
code = main(sys.argv[1:])
print(sorted({"torch", "numpy"} & set(sys.modules)), file=sys.stderr)
sys.exit(code)
"""
COMPLETE = """
{script}
COMP_WORDS=(budgetnet {words})
COMP_CWORD={place}
_budgetnet_completion budgetnet
echo "${{COMPREPLY[@]}}"
"""
SLOWEST_ANSWER = 2.0
"""Seconds. An answer takes 0.15 s on a quiet machine, where importing torch takes 2 to 3; this one may be busy."""

MODULES = {
    **dict.fromkeys(["search", "train"], searching),
    **dict.fromkeys(["certify", "export", "predict"], certifying),
    **dict.fromkeys(["report", "watch", "draw"], seeing),
    **dict.fromkeys(["show", "runs"], runs),
    **dict.fromkeys(["describe", "cost", "spaces", "costs"], cost),
    "sweep": sweeping,
    "reproduce": reproducing,
}


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "code", "answer"),
    [
        (["--help"], 0, "search"),
        (["--version"], 0, budgetnet.__version__),
        (["search", "--help"], 0, "--budget"),
        (["draw", "-h"], 0, "--theme"),
        (["completion", "zsh"], 0, "#compdef budgetnet"),
        (["completion", "fish"], 0, "complete --no-files --command budgetnet"),
        (["serach"], 2, "there is no command 'serach'; did you mean 'search'?"),
        (["zzz"], 2, "`budgetnet --help` lists the commands"),
        (["search", "--buget", "macs<=1"], 2, "--budget"),
        (["search", "--epochs", "many"], 2, "'many'"),
        (["export", "runs/a", "--format", "pickle"], 2, "'onnx', 'torch', 'safetensors'"),
    ],
)
def test_an_answer_about_the_command_line_needs_no_torch(arguments: list[str], code: int, answer: str) -> None:
    done = ask(*arguments)
    assert done.returncode == code, done.stderr
    assert answer in done.stdout + done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_is_quick() -> None:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        assert ask("--help").returncode == 0
        times.append(time.perf_counter() - start)
    assert min(times) < SLOWEST_ANSWER


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ce"], ["certify"]),
        (["co"], ["cost", "costs", "completion"]),
        (["search", "--dr"], ["--dry-run"]),
        (["export", "--format", ""], ["onnx", "torch", "safetensors"]),
    ],
)
def test_bash_completes(words: list[str], expected: list[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    program = tmp_path / "budgetnet"
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom budgetnet.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    quoted = " ".join(word or "''" for word in words)
    script = COMPLETE.format(script=ask("completion", "bash").stdout, words=quoted, place=len(words))
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda command: command.name)
def test_a_command_passes_on_what_its_function_takes(command: click.Command) -> None:
    assert command.help
    if command.name in ("completion", "meter"):
        return
    given = {parameter.name for parameter in command.params}
    parameters = inspect.signature(getattr(MODULES[str(command.name)], str(command.name))).parameters
    named = {name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD}
    assert named <= given
    if len(named) == len(parameters):
        assert named == given


def test_choices_are_those_that_the_package_accepts() -> None:
    assert choices.DEVICES == device.DEVICES
    assert choices.TRAINING_PRECISIONS == device.PRECISIONS
    assert choices.SCALES == SCALES
    assert tuple(OPTIMIZERS) == choices.OPTIMIZERS
    assert tuple(SCHEDULES) == choices.SCHEDULES
    assert choices.THEMES == THEMES
    assert choices.ACCOUNTINGS == ACCOUNTINGS
    assert choices.ALLOCATIONS == ALLOCATIONS
    assert tuple(FORMATS) == choices.FORMATS
    assert choices.PRECISIONS == PRECISIONS
    assert tuple(AXES) == choices.AXES


def test_help_lists_every_command_with_a_whole_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = dict(re.findall(r"^  (\w+) {2,}(\S.*)$", capsys.readouterr().out.partition("Commands:")[2], re.M))
    assert list(listed) == [command.name for command in commands.COMMANDS]
    assert not [name for name, words in listed.items() if words.endswith("...")]


def test_public_names_are_there_when_they_are_asked_for() -> None:
    from budgetnet import SuperNetwork
    from budgetnet.network import supernet

    assert SuperNetwork is supernet.SuperNetwork
    assert set(budgetnet.__all__) <= set(dir(budgetnet))
    assert all(getattr(budgetnet, name) is not None for name in budgetnet.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = budgetnet.nonsense
