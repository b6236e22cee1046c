"""Learn a neural network that fits a budget.

net = budgetnet.spaces.resnet_fabric(width=3, channels=16, classes=10, input_shape=(3, 32, 32))
result = budgetnet.search(net, train, validation, budgets=["macs<=40.9M", "size<=500kB"])
result.model, result.architecture, result.summary
"""

from budgetnet import costs, data, spaces
from budgetnet.budget import Budget
from budgetnet.config import Config
from budgetnet.errors import UserError
from budgetnet.extract import extract
from budgetnet.graph import Architecture, Edge, Graph
from budgetnet.run import Result, load, search
from budgetnet.sampling import EdgeDistribution
from budgetnet.supernet import SuperNetwork

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
