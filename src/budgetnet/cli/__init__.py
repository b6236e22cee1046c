"""The command line: parses, calls, prints. Commands are imported when they are used, so that `--help` is quick."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from budgetnet.errors import UserError


class _Lazy(NamedTuple):
    where: str
    help: str


COMMANDS = {
    "search": _Lazy("searching:search", "Learn a network that fits a budget: the main job."),
    "train": _Lazy("searching:train", "Train one fixed architecture, with the same loop: a baseline."),
    "sweep": _Lazy("sweeping:sweep", "Many searches and baselines: the curve of cost and accuracy."),
    "reproduce": _Lazy("reproducing:reproduce", "A table or figure of the paper: published numbers beside ours."),
    "certify": _Lazy("certifying:certify", "Measure a run or a model file against its budgets, here and now."),
    "export": _Lazy("certifying:export", "Write the network as ONNX, a torch program or safetensors."),
    "predict": _Lazy("certifying:predict", "Run an exported network on images."),
    "report": _Lazy("seeing:report", "One HTML page about one or several runs."),
    "watch": _Lazy("seeing:watch", "The same page, live, while a run goes on."),
    "draw": _Lazy("seeing:draw", "A picture of a space, a run or an architecture."),
    "show": _Lazy("runs:show", "Print one run."),
    "runs": _Lazy("runs:runs", "List the runs in a folder."),
    "cost": _Lazy("cost:cost", "What an architecture costs: multiply-adds, parameters, bytes, steps."),
    "spaces": _Lazy("cost:spaces", "List the built-in super networks."),
    "costs": _Lazy("cost:costs", "List the costs that a budget can limit."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].where.split(":")
        command: click.Command = getattr(importlib.import_module(f"budgetnet.cli.{module}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="budgetnet")
def commands() -> None:
    """Learn a neural network that fits a budget.

    \b
    budgetnet search                                     a first result on embedded data, in about two minutes
    budgetnet search --data cifar10 --budget "macs<=40.9M"
    budgetnet cost resnet-fabric:width=3 --architecture resnet-20

    Exit codes: 0 done; 1 a check says no; 2 bad input, or a budget that cannot be met; 3 finished, but the paper
    recipe's network is over its budget; 130 interrupted, state saved.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; what a user's input caused is one sentence on stderr and exit code 2."""
    try:
        result = commands.main(args=arguments, prog_name="budgetnet", standalone_mode=False)
    except UserError as error:
        return _fail(str(error))
    except click.ClickException as error:
        return _fail(error.format_message())
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        return 130
    except BrokenPipeError:
        # the reader of a pipe went away; keep the interpreter from complaining when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _fail(sentence: str) -> int:
    click.echo(f"error: {sentence}", err=True)
    return 2
