"""Mistakes in arguments of `search()` end in a sentence before any training; two searches run in two threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import budgetnet
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

INPUTS, TARGETS = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3


def small() -> SuperNetwork:
    """Two parallel edges and one."""
    edges = [Edge("a", "in", "mid"), Edge("b", "in", "mid"), Edge("c", "mid", "out")]
    modules = {"a": nn.Linear(6, 8), "b": nn.Linear(6, 8), "c": nn.Linear(8, 3)}
    return SuperNetwork(Graph(edges), modules, input_shape=(6,))


def search(folder: Path, **changes: Any) -> budgetnet.Result:
    """A search in a moment, with one argument changed."""
    data = (INPUTS, TARGETS)
    given: dict[str, Any] = {"net": small(), "train": data, "validation": data, "budgets": "macs<=90%"}
    given |= {"epochs": 0.2, "batch_size": 16, "quiet": True, "out": folder, **changes}
    return budgetnet.search(given.pop("net"), given.pop("train"), given.pop("validation"), **given)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda: {"net": small().half()}, r"float16.*net\.float\(\)"),
        (lambda: {"net": small().double()}, r"float64.*net\.float\(\)"),
        (lambda: {"net": small().to("meta")}, "meta device"),
        (lambda: {"net": None}, "NoneType is not a super network"),
        (lambda: {"train": None}, "no training or no validation"),
        (lambda: {"train": (INPUTS.half(), TARGETS)}, "float16"),
        (lambda: {"train": (INPUTS.to("meta"), TARGETS)}, "inputs are on the meta device"),
        (lambda: {"train": (INPUTS, TARGETS.to("meta"))}, "targets are on the meta device"),
        (lambda: {"train": (INPUTS.to_sparse(), TARGETS)}, "to_dense"),
        (lambda: {"train": (INPUTS[:0], TARGETS[:0])}, "at least one example"),
        (lambda: {"train": []}, "pair"),
        (lambda: {"train": "abc"}, "a text"),
        (lambda: {"train": {"a": 1}}, "dict"),
        (lambda: {"train": (INPUTS, TARGETS + 5)}, "label 5"),
        (lambda: {"train": (INPUTS, TARGETS - 5)}, "label -"),
        (lambda: {"budgets": None}, "the budgets are a NoneType"),
        (lambda: {"budgets": 3}, "the budgets are a int"),
        (lambda: {"budgets": [None]}, "None is not a budget"),
        (lambda: {"recipe": None}, "the recipe is a NoneType"),
        (lambda: {"out": 3}, "out is a int"),
        (lambda: {"augmentation": 3}, "the augmentation is a int"),
        (lambda: {"loss": 3}, "the loss is int"),
        (lambda: {"seed": "one"}, "seed"),
    ],
)
def test_a_mistake_is_a_sentence_before_any_training(
    tmp_path: Path, changes: Callable[[], dict[str, Any]], words: str
) -> None:
    with pytest.raises(budgetnet.UserError, match=words):
        search(tmp_path / "run", **changes())
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_two_searches_run_in_two_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: search(tmp_path / name), "ab"))
    assert all(result.met for result in found)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
