"""Costs of an architecture, and the text that names one: `macs`, `steps(4,dfs)`, `package.module:energy`."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from budgetnet.costs.base import Meter
from budgetnet.costs.counts import AdditiveCost, macs, params, size
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.files import file_size
from budgetnet.costs.latency.cost import latency, latency_p95
from budgetnet.costs.memory import peak_memory
from budgetnet.costs.steps import Steps, steps
from budgetnet.costs.traffic import traffic
from budgetnet.errors import UserError
from budgetnet.naming import convert, load_object
from budgetnet.network.supernet import SuperNetwork

__all__ = [
    "COSTS",
    "AdditiveCost",
    "CostFactory",
    "CostKind",
    "Evidence",
    "Meter",
    "Steps",
    "bind",
    "file_size",
    "latency",
    "latency_p95",
    "macs",
    "params",
    "peak_memory",
    "size",
    "steps",
    "traffic",
]

CostFactory = Callable[..., Callable[..., float]]


@dataclass(frozen=True)
class CostKind:
    """A built-in cost: what makes it for a super network, and its unit."""

    factory: CostFactory
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

_CALL = re.compile(r"\s*([\w.:-]+)\s*(?:\((.*)\))?\s*")


def bind(cost: str | CostFactory, net: SuperNetwork) -> Meter:
    """A meter for a cost given by its text or as a user's factory, which is called with the super network."""
    if callable(cost):
        return _bind_factory(cost, cost.__name__ if hasattr(cost, "__name__") else type(cost).__name__, net, "")
    match = _CALL.fullmatch(cost)
    if match is None:
        raise UserError(f"{cost!r} does not name a cost; write NAME or NAME(arguments), such as macs or steps(4)")
    name, arguments = match[1], match[2] or ""
    if name in COSTS:
        function = COSTS[name].factory(net, **_arguments(COSTS[name].factory, arguments, name))
        return Meter(net.graph, function, re.sub(r"\s", "", cost), COSTS[name].unit)
    return _bind_factory(load_object(name, "a cost", COSTS), name, net, arguments)


def _bind_factory(factory: CostFactory, name: str, net: SuperNetwork, arguments: str) -> Meter:
    """`unit`, `stochastic` and `quantile` may be attributes of the factory or of what it returns."""
    values = _arguments(factory, arguments, name)
    try:
        function = factory(net, **values)
    except UserError:
        raise
    except Exception as error:  # a user's factory may raise anything
        raise UserError(f"the cost {name} raised {type(error).__name__}: {error}; correct the function") from error
    if not callable(function):
        raise UserError(
            f"the cost {name} gave a {type(function).__name__} for a super network, not a function of an architecture; "
            "return a callable from it"
        )
    unit = getattr(function, "unit", getattr(factory, "unit", ""))
    stochastic = getattr(function, "stochastic", getattr(factory, "stochastic", False))
    quantile = getattr(function, "quantile", getattr(factory, "quantile", None))
    return Meter(net.graph, function, f"{name}({arguments})" if arguments else name, unit, stochastic, quantile)


def _arguments(factory: CostFactory, text: str, name: str) -> dict[str, Any]:
    """`4,dfs` or `machines=4` as keyword arguments of a factory, whose first parameter is the super network."""
    parameters = dict(list(inspect.signature(factory).parameters.items())[1:])
    hints = typing.get_type_hints(factory)
    usage = f"{name}({', '.join(parameters)})" if parameters else name
    arguments: dict[str, Any] = {}
    for position, part in enumerate(filter(None, (part.strip() for part in text.split(",")))):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = (list(parameters)[position] if position < len(parameters) else part), part
        if key.strip() not in parameters or key.strip() in arguments:
            raise UserError(f"the cost {name} does not take {part!r}; write {usage}")
        arguments[key.strip()] = convert(value.strip(), hints.get(key.strip(), str), f"{key.strip()} of {name}")
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and key not in arguments:
            raise UserError(f"the cost {name} needs {key}; write {usage}, such as {name}(4)")
    return arguments
