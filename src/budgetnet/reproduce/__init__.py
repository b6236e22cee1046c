"""The tables and figures of the paper: published numbers, and the sweeps that make ours beside them."""

from budgetnet.reproduce.catalogue import REPRODUCTIONS, Method, Reproduction, find, plan_of
from budgetnet.reproduce.estimates import estimated
from budgetnet.reproduce.outcome import RUNS, write_outcome
from budgetnet.reproduce.settings import SCALES, Setting

__all__ = [
    "REPRODUCTIONS",
    "RUNS",
    "SCALES",
    "Method",
    "Reproduction",
    "Setting",
    "estimated",
    "find",
    "plan_of",
    "write_outcome",
]
