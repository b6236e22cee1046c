"""What an architecture costs: counted, scheduled or measured, or whatever a user's function says."""

from budgetnet.costs.base import Cost, FunctionCost
from budgetnet.costs.counts import AdditiveCost, macs, params, size
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.files import file_size
from budgetnet.costs.latency.cost import latency, latency_p95
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
    "Evidence",
    "FunctionCost",
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
