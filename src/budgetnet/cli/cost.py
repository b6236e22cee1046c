"""`budgetnet cost`, `budgetnet spaces`, `budgetnet costs`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from budgetnet.cli.options import input_shape, plain_table, print_json, print_table, whole_numbers
from budgetnet.costs import COSTS, macs, params, size, steps, units
from budgetnet.costs.counts import ACCOUNTINGS
from budgetnet.costs.steps import ALLOCATIONS
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES, build
from budgetnet.spaces.named import find_architecture


@click.command()
@click.argument("space")
@click.option("--architecture", default="full", show_default=True, help="full, a named one (resnet-20), or a file.")
@click.option("--input", "shape", default="3x32x32", show_default=True, help="Shape of one input.")
@click.option("--classes", default=10, show_default=True, help="Classes of the head.")
@click.option(
    "--accounting",
    default="true",
    type=click.Choice(ACCOUNTINGS),
    show_default=True,
    help="'paper' charges up-sampling edges at their input's resolution, as the published tables do.",
)
@click.option("--machines", default="1,2,4", show_default=True, help="Units that run at once, for the steps.")
@click.option("--allocation", default=ALLOCATIONS[0], type=click.Choice(ALLOCATIONS), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def cost(
    space: str,
    architecture: str,
    shape: str,
    classes: int,
    accounting: str,
    machines: str,
    allocation: str,
    as_json: bool,
) -> None:
    """What an architecture of SPACE costs, without training or measuring anything.

    \b
    budgetnet cost resnet-fabric:width=3,channels=16 --architecture resnet-20
    budgetnet cost neural-fabric:width=8,scales=9,filters=64,task=segmentation --input 3x256x256 --classes 3
    budgetnet cost my_package.my_module:builder --input 8 --json
    """
    machine_counts = whole_numbers(machines, "--machines")
    net = build(space, input_shape(shape), classes)
    found = find_architecture(net, architecture)
    result = {"space": net.name, "architecture": architecture, "accounting": accounting}
    result |= _costs(net, found, accounting, machine_counts, allocation)
    if as_json:
        print_json(result)
    else:
        _print_costs(result, allocation)


def _costs(
    net: SuperNetwork, found: Architecture, accounting: str, machines: list[int], allocation: str
) -> dict[str, Any]:
    multiply_adds = macs(net, accounting)
    return {
        "macs": _whole(multiply_adds(found)),
        "params": int(params(net)(found)),
        "size_bytes": int(size(net)(found)),
        "steps": {str(n): int(steps(net, n, allocation)(found)) for n in machines},
        "edges": len(net.graph.edges),
        "live_edges": len(found.live()),
        "uncounted": list(multiply_adds.uncounted),
    }


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value


def _print_costs(result: dict[str, Any], allocation: str) -> None:
    table = plain_table("cost", "value", "exactly", right=("value", "exactly"))
    table.add_row("multiply-adds", units.show(result["macs"], "macs"), f"{result['macs']:,}")
    table.add_row("parameters", units.show(result["params"], "params"), f"{result['params']:,}")
    table.add_row("size", units.show(result["size_bytes"], "B"), f"{result['size_bytes']:,}")
    for machines, ticks in result["steps"].items():
        table.add_row(f"steps on {machines} ({allocation})", str(ticks), str(ticks))
    table.add_row("live edges", f"{result['live_edges']} of {result['edges']}", str(result["live_edges"]))
    click.echo(f"{result['space']}, {result['architecture']}, {result['accounting']} accounting")
    print_table(table)
    if result["uncounted"]:
        click.echo(f"not counted in multiply-adds: {', '.join(result['uncounted'])}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def spaces(as_json: bool) -> None:
    """The built-in super networks, with their parameters and defaults.

    Name one as NAME:parameter=value,… or give your own as package.module:builder, a function that returns a
    SuperNetwork. `classes` and `input_shape` come from the data.
    """
    rows = {name: {"parameters": _parameters(builder), "about": _about(builder)} for name, builder in SPACES.items()}
    _print_listing(rows, as_json)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
def costs(as_json: bool) -> None:
    """The costs that a budget can limit, with their arguments and units.

    Write a budget as NAME(arguments)<=VALUE with a unit or a share of the full network: "macs<=40.9M",
    "steps(4)<=20", "size<=60%". Your own cost is package.module:name, a function of the super network that returns a
    function of an architecture.
    """
    rows = {
        name: {"parameters": _parameters(kind.factory), "unit": kind.unit, "about": _about(kind.factory)}
        for name, kind in COSTS.items()
    }
    _print_listing(rows, as_json)


def _print_listing(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    columns = list(next(iter(rows.values())))
    table = plain_table("name", *columns)
    for name, row in rows.items():
        cells = [", ".join(f"{k}={v}" for k, v in c.items()) if isinstance(c, dict) else c for c in row.values()]
        table.add_row(name, *cells)
    print_table(table)


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Names and defaults of what a user can set; `required` where there is no default."""
    hidden = ("net", "classes", "input_shape")
    return {
        name: "required" if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in hidden
    }


def _about(function: Callable[..., Any]) -> str:
    return (inspect.getdoc(function) or "").partition("\n")[0]
