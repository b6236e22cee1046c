"""Commands that need no data and no run: `describe`, `cost`, `spaces`, `costs` and `completion`."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from budgetnet.cli.commands import shared
from budgetnet.cli.commands.choices import ACCOUNTINGS, ALLOCATIONS, SHELLS

_one_object = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


@click.command()
@click.argument("space")
@shared.architecture
@shared.input_shape
@shared.classes
@click.option(
    "--accounting",
    default="true",
    type=click.Choice(ACCOUNTINGS),
    show_default=True,
    help="'paper' charges up-sampling edges at their input's resolution, as the published tables do.",
)
@click.option("--machines", default="1,2,4", show_default=True, help="Numbers of parallel units for the steps.")
@click.option("--allocation", default=ALLOCATIONS[0], type=click.Choice(ALLOCATIONS), show_default=True)
@_one_object
def cost(**options: Any) -> None:
    """Print what an architecture of SPACE costs: multiply-adds, parameters, bytes, steps.

    Nothing is trained or measured.

    \b
    budgetnet cost resnet-fabric:width=3,channels=16 --architecture resnet-20
    budgetnet cost neural-fabric:width=8,scales=9,filters=64,task=segmentation --input 3x256x256 --classes 3
    budgetnet cost my_package.my_module:builder --input 8 --json
    """
    from budgetnet.cli import cost as costing

    costing.cost(**options)


@click.command()
@click.argument("space")
@shared.input_shape
@shared.classes
@click.option("--weights", help="A checkpoint of the model, .safetensors or .pt, to check and load.")
@click.option(
    "--cost",
    "costs",
    multiple=True,
    default=("macs", "params", "size"),
    show_default=True,
    help="A cost to show the smallest and the full value of; may be repeated.",
)
@_one_object
def describe(**options: Any) -> None:
    """Print what can be chosen in SPACE: your own model, or a built-in super network.

    A model is a function that returns an nn.Module, or a pair of it and example inputs; `classes` and `input_shape`
    are passed on if the function takes them. The table has a row for each part: what can be dropped or narrowed, its
    share of multiply-adds and parameters, and why the rest is fixed.

    \b
    budgetnet describe my_package.nets:resnet --input 3x224x224
    budgetnet describe my_package.nets:vit:depth=6 --cost macs --cost "latency(threads=1)"
    """
    from budgetnet.cli import cost as costing

    costing.describe(**options)


@click.command()
@_one_object
def spaces(**options: Any) -> None:
    """List the built-in super networks with their parameters.

    Name one as NAME:parameter=value,… or give your own as package.module:builder, a function that returns a
    SuperNetwork. `classes` and `input_shape` come from the data.
    """
    from budgetnet.cli import cost as costing

    costing.spaces(**options)


@click.command()
@_one_object
def costs(**options: Any) -> None:
    """List the costs that a budget can limit, with arguments and units.

    Write a budget as NAME(arguments)<=VALUE with a unit or a share of the full network: "macs<=40.9M",
    "steps(4)<=20", "size<=60%". Your own cost is package.module:name, a function of the super network that returns a
    function of an architecture.
    """
    from budgetnet.cli import cost as costing

    costing.costs(**options)


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell.

    \b
    budgetnet completion bash >> ~/.bashrc
    budgetnet completion zsh >> ~/.zshrc
    budgetnet completion fish > ~/.config/fish/completions/budgetnet.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "budgetnet", "_BUDGETNET_COMPLETE").source())
