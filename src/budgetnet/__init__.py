"""Learn a neural network that fits a budget.

net = budgetnet.spaces.resnet_fabric(width=3, channels=16, classes=10, input_shape=(3, 32, 32))
result = budgetnet.search(net, train, validation, budgets=["macs<=40.9M", "size<=500kB"])
result.model, result.architecture, result.summary

Public names are imported when they are first used, so that the command line answers without waiting for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetnet import costs, data, spaces
    from budgetnet.budgets.budget import Budget
    from budgetnet.errors import UserError
    from budgetnet.network.distribution import EdgeDistribution
    from budgetnet.network.extract import extract
    from budgetnet.network.graph import Architecture, Edge, Graph
    from budgetnet.network.supernet import SuperNetwork
    from budgetnet.runs.config import Config
    from budgetnet.runs.drawing import draw
    from budgetnet.runs.family import search_family
    from budgetnet.runs.result import Result, load
    from budgetnet.runs.search import search
    from budgetnet.spaces.from_model import from_model
    from budgetnet.strategies.searcher import Searcher
    from budgetnet.training.callbacks import Callback
    from budgetnet.training.metrics import Metric

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "Budget",
    "Callback",
    "Config",
    "Edge",
    "EdgeDistribution",
    "Graph",
    "Metric",
    "Result",
    "Searcher",
    "SuperNetwork",
    "UserError",
    "costs",
    "data",
    "draw",
    "extract",
    "from_model",
    "load",
    "search",
    "search_family",
    "spaces",
]

_MODULES = {
    "Architecture": "network.graph",
    "Budget": "budgets.budget",
    "Callback": "training.callbacks",
    "Config": "runs.config",
    "Edge": "network.graph",
    "EdgeDistribution": "network.distribution",
    "Graph": "network.graph",
    "Metric": "training.metrics",
    "Result": "runs.result",
    "Searcher": "strategies.searcher",
    "SuperNetwork": "network.supernet",
    "UserError": "errors",
    "draw": "runs.drawing",
    "extract": "network.extract",
    "from_model": "spaces.from_model",
    "load": "runs.result",
    "search": "runs.search",
    "search_family": "runs.family",
}
"""The module of every public name that is not a module itself."""


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
