"""Learn a neural network that fits a budget.

net = budgetnet.spaces.resnet_fabric(width=3, channels=16, classes=10, input_shape=(3, 32, 32))
result = budgetnet.search(net, train, validation, budgets=["macs<=40.9M", "size<=500kB"])
result.model, result.architecture, result.summary
"""

from budgetnet import costs, data, spaces
from budgetnet.budgets.budget import Budget
from budgetnet.errors import UserError
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.config import Config
from budgetnet.runs.execute import Result, load, search

__version__ = "0.1.0"

__all__ = [
    "Architecture",
    "Budget",
    "Config",
    "Edge",
    "EdgeDistribution",
    "Graph",
    "Result",
    "SuperNetwork",
    "UserError",
    "costs",
    "data",
    "extract",
    "load",
    "search",
    "spaces",
]
