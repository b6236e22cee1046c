"""Many runs: a plan, an engine that carries it out, the paper's model selection, and one table."""

from budgetnet.sweep.cluster import DaskEngine
from budgetnet.sweep.control import Swept, check_folder, run_sweep
from budgetnet.sweep.engine import Ending, Engine, Order
from budgetnet.sweep.estimates import Estimate, estimates
from budgetnet.sweep.plan import Plan, make_plan
from budgetnet.sweep.processes import LocalEngine, local_engine

__all__ = [
    "DaskEngine",
    "Ending",
    "Engine",
    "Estimate",
    "LocalEngine",
    "Order",
    "Plan",
    "Swept",
    "check_folder",
    "estimates",
    "local_engine",
    "make_plan",
    "run_sweep",
]
