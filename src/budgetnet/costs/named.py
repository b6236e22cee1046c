"""The costs by name, and the text that names one: `macs`, `steps(4,dfs)`, `package.module:energy`."""

from __future__ import annotations

import inspect
import os
import re
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from budgetnet.costs.base import Cost, FunctionCost
from budgetnet.costs.counts import macs, params, size
from budgetnet.costs.files import file_size
from budgetnet.costs.latency.limits import latency, latency_p95
from budgetnet.costs.latency.runtimes import RUNTIMES, Runtime
from budgetnet.costs.memory import peak_memory
from budgetnet.costs.meter import Meter
from budgetnet.costs.steps import steps
from budgetnet.costs.traffic import traffic
from budgetnet.errors import UserError, user_code
from budgetnet.naming import convert, load_object, written_options
from budgetnet.naming.values import printable
from budgetnet.network.supernet import SuperNetwork

CostFactory = Callable[..., Callable[..., float]]
"""Makes a cost for a super network: a `Cost`, or any function of an architecture (and a batch)."""


@dataclass(frozen=True)
class CostKind:
    """A built-in cost: what makes it for a super network, and its unit."""

    factory: Callable[..., Cost]
    unit: str


COSTS: dict[str, CostKind] = {
    "macs": CostKind(macs, "macs"),
    "params": CostKind(params, "params"),
    "size": CostKind(size, "B"),
    "steps": CostKind(steps, "steps"),
    "latency": CostKind(latency, "s"),
    "latency_p95": CostKind(latency_p95, "s"),
    "peak_memory": CostKind(peak_memory, "B"),
    "file_size": CostKind(file_size, "B"),
    "traffic": CostKind(traffic, "B"),
}

ALSO_CALLED = {
    "flops": "macs",
    "flop": "macs",
    "mac": "macs",
    "madds": "macs",
    "parameters": "params",
    "time": "latency",
}
"""What people call some costs elsewhere; a flop is half a multiply-add, so that a number would mean another limit."""
TARGETS = "BUDGETNET_METER_TARGETS"
"""The environment variable that may list addresses of meters, for runs that are certified or resumed."""

_CALL = re.compile(r"\s*([\w.:-]+)\s*(?:\((.*)\))?\s*")


def bind(cost: str | CostFactory, net: SuperNetwork, *, own: Collection[str] = ()) -> Meter:
    """Makes a cost for a super network.

    Args:
        cost: The text of a built-in cost or of a user's own as `package.module:name`, with arguments in parentheses;
            or a factory, which is called with the super network.
        net: The super network.
        own: The names of code that the user gave to this process (`naming.own_names`); a text can load no other.

    Returns:
        A meter of the cost.
    """
    if callable(cost):
        name = cost.__name__ if hasattr(cost, "__name__") else type(cost).__name__
        return Meter(_own_cost(cost, name, net, ""), own=True)
    name, arguments = _parts(cost)
    if name.lower() in ALSO_CALLED:
        meant = ALSO_CALLED[name.lower()]
        twice = " (one multiply-add is two flops)" if "flop" in name.lower() else ""
        raise UserError(f"there is no cost {name!r}; use {meant}{twice}, as in {meant}<=60%")
    if name not in COSTS:
        return Meter(_own_cost(load_object(name, "a cost", COSTS, own), name, net, arguments), own=True)
    kind = COSTS[name]
    given = _arguments(kind.factory, arguments, name)
    if given.get("target"):
        _check_target(given["target"], own)
    if ":" in given.get("runtime", ""):
        given["runtime"] = _own_runtime(given["runtime"], own)
    made = kind.factory(net, **given)
    made.name, made.unit = re.sub(r"\s", "", cost), kind.unit
    return Meter(made)


def _parts(cost: str) -> tuple[str, str]:
    """A cost's name, and what stands in its parentheses."""
    match = _CALL.fullmatch(cost)
    if match is None:
        raise UserError(f"{cost!r} does not name a cost; write NAME or NAME(arguments), such as macs or steps(4)")
    return match[1], match[2] or ""


def _check_target(url: str, own: Collection[str]) -> None:
    """A file cannot send networks and the user's token to an address of its choice."""
    if url not in own and url not in os.environ.get(TARGETS, "").split(","):
        raise UserError(
            f"the target {url!r:.100} was not named by you, and a file cannot say where a token is sent; repeat the "
            f"budget with --budget, or set {TARGETS}={printable(url, 100)}"
        )


def _own_runtime(name: str, own: Collection[str]) -> Runtime:
    """A user's runtime, which is loaded only if the user named it to this process."""
    if name not in own:
        raise UserError(
            f"{name!r} is a runtime of your own, and code is loaded only where you name it, never because a file does; "
            f"add --cost {name} on the command line, or give the object itself in Python"
        )
    with user_code(f"the runtime {name}", "; correct it"):
        made = load_object(name, "a runtime", RUNTIMES, own)()
    if not isinstance(made, Runtime):
        raise UserError(f"{name} gave a {type(made).__name__}; derive it from budgetnet.costs.latency.runtimes.Runtime")
    made.name = name
    return made


def _own_cost(factory: CostFactory, name: str, net: SuperNetwork, arguments: str) -> Cost:
    """A user's cost; `unit`, `stochastic` and `quantile` may be attributes of the factory or of what it returns."""
    values = _arguments(factory, arguments, name)
    with user_code(f"the cost {name}", "; correct the function"):
        function = factory(net, **values)
    text = f"{name}({arguments})" if arguments else name
    if isinstance(function, Cost):
        function.name = text
        function.unit = function.unit or _declared((factory,), "unit", str, "", text)
        return function
    if not callable(function):
        raise UserError(
            f"the cost {name} gave a {type(function).__name__} for a super network, not a function of an architecture; "
            "return a callable from it"
        )
    both = (function, factory)
    return FunctionCost(
        net.graph,
        function,
        text,
        _declared(both, "unit", str, "", text),
        _declared(both, "stochastic", bool, False, text),
        _declared(both, "quantile", (int, float, type(None)), None, text),
    )


def _declared(objects: tuple[object, ...], name: str, kind: Any, default: Any, cost: str) -> Any:
    """What a user says about a cost by an attribute; a method that happens to have the name says nothing."""
    for value in (getattr(owner, name) for owner in objects if hasattr(owner, name)):
        if callable(value):
            continue
        if not isinstance(value, kind):
            wanted = {"unit": "a text such as 'J'", "stochastic": "True or False", "quantile": "a number such as 0.95"}
            raise UserError(f"`{name}` of the cost {cost} is {value!r:.80}; it must be {wanted[name]}")
        return value
    return default


def _arguments(factory: Callable[..., Any], text: str, name: str) -> dict[str, Any]:
    """`4,dfs` or `machines=4` as keyword arguments of a factory, whose first parameter is the super network."""
    try:
        parameters = dict(list(inspect.signature(factory).parameters.items())[1:])
    except (ValueError, TypeError):
        raise UserError(f"the cost {name} has no signature to call it by; wrap it in a function of your own") from None
    try:
        hints = typing.get_type_hints(factory)
    except Exception:  # annotations may name what is not there when they are looked up
        hints = {}
    usage = f"{name}({', '.join(parameters)})" if parameters else name
    arguments: dict[str, Any] = {}
    for part, key, value in written_options(text, list(parameters)):
        if key is None or key not in parameters or key in arguments:
            raise UserError(f"the cost {name} does not take {part!r}; write {usage}")
        arguments[key] = convert(value, hints.get(key, str), f"{key} of {name}")
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in arguments:
            raise UserError(f"the cost {name} needs {key}; write {usage}, such as {name}(4)")
    return arguments
