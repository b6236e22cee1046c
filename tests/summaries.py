"""Summaries of runs that never were, for tests that need only the numbers."""

from __future__ import annotations

from typing import Any

from budgetnet.records.results import BudgetResult, Summary


def make_summary(**changes: Any) -> Summary:
    """A summary with plausible values and what a test says otherwise."""
    values: dict[str, Any] = {
        "run": "runs/a",
        "space": "made-up",
        "recipe": "fast",
        "seed": 0,
        "architecture": ("a", "b"),
        "budgets": (),
        "validation_score": 0.5,
        "test_score": None,
        "macs": 1000,
        "params": 100,
        "seconds": 1.5,
        "phases": {"search": 1.0, "finish": 0.5},
    }
    return Summary(**{**values, **changes})


def make_budget(cost: str = "macs", value: float = 900.0, maximum: float = 1000.0, unit: str = "macs") -> BudgetResult:
    """A budget that is met if the value is within the maximum."""
    return BudgetResult(cost, unit, maximum, value, value <= maximum, f"{cost}<={maximum:g}")
