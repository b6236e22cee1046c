"""Converted models under budgets of every kind that is counted: met, certified, exported, predictions compared.

`benchmarks.own_model_budgets` does the same for each kind alone, and for a measured latency.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.own_model_budgets import BUDGETS, TOLERANCE, cases, searched


@pytest.mark.parametrize("name", cases())
def test_a_converted_model_meets_all_counted_budgets(name: str, tmp_path: Path) -> None:
    counted = [budget for budget in BUDGETS if not budget.startswith("latency")]
    found = searched(name, counted, tmp_path)
    assert found["met"]
    assert found["certified"]
    assert all(cost["measured"] <= cost["maximum"] for cost in found["costs"])
    assert len(found["costs"]) == 6
    assert found["largest_difference"] < TOLERANCE
