"""The command line: parses, calls, prints. Nothing here imports torch until a command needs it."""

from __future__ import annotations

import difflib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence

import click

from budgetnet.cli.commands import COMMANDS
from budgetnet.errors import UserError, reason
from budgetnet.naming.values import printable

DEBUG = "--debug"
LONGEST_SENTENCE = 1500
"""Characters of an error message that are printed."""
LOG = logging.getLogger(__name__)
"""Hears of every error that only the command line's last resort turned into a sentence; the fuzzer listens."""


class _Commands(click.Group):
    """Lists commands in our order, and suggests the nearest one for a name that does not exist."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(100)) for name, command in self.commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.commands, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "`budgetnet --help` lists the commands"
        raise click.UsageError(f"there is no command {name!r}; {remedy}", ctx)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="budgetnet")
def program() -> None:
    """Learn a neural network that fits a budget.

    \b
    budgetnet search                                     a first result on embedded data, in about two minutes
    budgetnet search --data cifar10 --budget "macs<=40.9M"
    budgetnet cost resnet-fabric:width=3 --architecture resnet-20

    Exit codes: 0 done; 1 a check failed; 2 bad input, or a budget that cannot be met; 3 finished, but the paper
    recipe's network is over its budget; 130 interrupted, state saved. With --debug, an error shows its traceback.
    """


for _command in COMMANDS:
    program.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: What follows the program's name; those of the process if not given. `--debug`, anywhere among them,
            shows the traceback of an error.

    Returns:
        The exit code. An error is one sentence on stderr and exit code 2.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if DEBUG in words:
        words.remove(DEBUG)
        return _run(words, traceback.print_exc)
    return _run(words)


def _run(words: list[str], tell: Callable[[], None] = lambda: None) -> int:
    try:
        return _carry_out(words, tell)
    except KeyboardInterrupt:  # a second one, while the first is being told
        return 130


def _carry_out(words: list[str], tell: Callable[[], None]) -> int:
    try:
        result = program.main(args=words, prog_name="budgetnet", standalone_mode=False)
    except UserError as error:
        tell()
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
    except OSError as error:
        LOG.debug("an OSError reached the command line", exc_info=True)
        tell()
        return _fail(f"{error.filename or 'a file'} cannot be used ({error.strerror or reason(error)}); check the path")
    except Exception as error:  # nothing of ours should get here: it is a fault of budgetnet, or of the machine
        LOG.debug("an unexpected error reached the command line", exc_info=True)
        tell()
        return _fail(f"{type(error).__name__}: {reason(error)}; budgetnet did not expect this; {DEBUG} shows where")
    return result if isinstance(result, int) else 0


def _fail(sentence: str) -> int:
    click.echo(f"error: {printable(sentence, LONGEST_SENTENCE)}", err=True)
    return 2
