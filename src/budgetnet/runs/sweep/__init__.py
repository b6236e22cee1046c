"""Many runs: a plan, an engine that carries it out, the paper's model selection, and one table."""

from budgetnet.runs.sweep.cluster import DaskEngine
from budgetnet.runs.sweep.control import Swept, adopt, check_folder, run_sweep
from budgetnet.runs.sweep.engine import Ending, Engine, Order
from budgetnet.runs.sweep.estimates import Estimate, estimates
from budgetnet.runs.sweep.plan import Plan, make_plan
from budgetnet.runs.sweep.processes import LocalEngine, local_engine

__all__ = [
    "DaskEngine",
    "Ending",
    "Engine",
    "Estimate",
    "LocalEngine",
    "Order",
    "Plan",
    "Swept",
    "adopt",
    "check_folder",
    "estimates",
    "local_engine",
    "make_plan",
    "run_sweep",
]
