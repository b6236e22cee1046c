"""What an architecture costs: counted, scheduled or measured, or whatever a user's function says.

Public names are imported when they are first used, since the meter of `latency/` runs on devices without torch.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetnet.costs.base import Cost, FunctionCost
    from budgetnet.costs.counts import AdditiveCost, Count, count, macs, params, size
    from budgetnet.costs.evidence import Evidence
    from budgetnet.costs.files import file_size
    from budgetnet.costs.latency.limits import latency, latency_p95
    from budgetnet.costs.memory import peak_memory
    from budgetnet.costs.meter import Meter
    from budgetnet.costs.named import COSTS, CostFactory, CostKind, bind
    from budgetnet.costs.steps import Steps, steps
    from budgetnet.costs.traffic import traffic

__all__ = [
    "COSTS",
    "AdditiveCost",
    "Cost",
    "CostFactory",
    "CostKind",
    "Count",
    "Evidence",
    "FunctionCost",
    "Meter",
    "Steps",
    "bind",
    "count",
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

_MODULES = {
    "COSTS": "named",
    "AdditiveCost": "counts",
    "Count": "counts",
    "count": "counts",
    "Cost": "base",
    "CostFactory": "named",
    "CostKind": "named",
    "Evidence": "evidence",
    "FunctionCost": "base",
    "Meter": "meter",
    "Steps": "steps",
    "bind": "named",
    "file_size": "files",
    "latency": "latency.limits",
    "latency_p95": "latency.limits",
    "macs": "counts",
    "params": "counts",
    "peak_memory": "memory",
    "size": "counts",
    "steps": "steps",
    "traffic": "traffic",
}
"""The module of every public name."""


class _Room(ModuleType):
    """This module: `latency`, `steps` and `traffic` are costs here, not the files of these names."""

    def __setattr__(self, name: str, value: Any) -> None:
        # an import sets a file's module as an attribute of its folder
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Room


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
