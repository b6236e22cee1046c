"""`budgetnet describe`, `budgetnet cost`, `budgetnet spaces`, `budgetnet costs`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import Profile, profile
from budgetnet.cli.options import input_shape, plain_table, print_json, print_table, whole_numbers
from budgetnet.costs import COSTS, macs, params, size, steps, units
from budgetnet.naming import own_names
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import SPACES, build
from budgetnet.spaces.named import find_architecture


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
    """`budgetnet cost`: prints what an architecture costs."""
    machine_counts = whole_numbers(machines, "--machines")
    net = build(space, input_shape(shape), classes, own=own_names(space))
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


def describe(space: str, shape: str, classes: int, weights: str | None, costs: tuple[str, ...], as_json: bool) -> None:
    """`budgetnet describe`: prints what can be chosen in a model or a space, and the range of its costs."""
    net = build(space, input_shape(shape), classes, own=own_names(space), weights=weights)
    found = net.describe()
    rows = profile(parse_all([f"{name}<=100%" for name in costs], net, own=own_names(*costs)))
    if as_json:
        print_json({**found.to_json(), "costs": {name: _range(row) for name, row in zip(costs, rows, strict=True)}})
        return
    click.echo(str(found))
    table = plain_table("cost", "smallest", "full", right=("smallest", "full"))
    for row in rows:
        least = row.budget.show(row.smallest) + ("" if row.exact else " (found)")
        table.add_row(row.budget.name, least, row.budget.show(row.full))
    click.echo()
    print_table(table)


def _range(row: Profile) -> dict[str, Any]:
    unit = row.budget.meter.unit
    return {"smallest": row.smallest, "exact": row.exact, "full": row.full, "unit": unit}


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


def spaces(as_json: bool) -> None:
    """`budgetnet spaces`: lists the built-in super networks."""
    rows = {name: {"parameters": _parameters(builder), "about": _about(builder)} for name, builder in SPACES.items()}
    _print_listing(rows, as_json)


def costs(as_json: bool) -> None:
    """`budgetnet costs`: lists the costs that a budget can limit."""
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
