"""Mistakes in arguments of `search()` end in a sentence before any training; two searches run in two threads."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import budgetnet
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import resnet_fabric
from budgetnet.training.metrics import Metric
from budgetnet.training.tasks import Task

INPUTS, TARGETS = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    """Examples without end, of an untrue length if one is given."""

    def __init__(self, length: int | None = None) -> None:
        self.length = length

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("no length")
        return self.length

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield INPUTS[0], TARGETS[0]


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
        (lambda: {"recipe": 3}, "the recipe is a int"),
        (lambda: {"out": 3}, "out is a int"),
        (lambda: {"augmentation": 3}, "the augmentation is a int"),
        (lambda: {"loss": 3}, "the loss is int"),
        (lambda: {"seed": "one"}, "seed"),
        (lambda: {"train": DataLoader([])}, "no batch|at least one"),
        (lambda: {"train": DataLoader(Endless())}, "length of the data loader is not known|__len__"),
    ],
)
def test_a_mistake_is_a_sentence_before_any_training(
    tmp_path: Path, changes: Callable[[], dict[str, Any]], words: str
) -> None:
    with pytest.raises(budgetnet.UserError, match=words):
        search(tmp_path / "run", **changes())
    assert not (tmp_path / "run" / "checkpoints").exists()


def fails(*arguments: Any) -> Tensor:
    """A function of the user's with a fault."""
    raise ZeroDivisionError("it is\nbroken")


def later_batches() -> DataLoader[Any]:
    """Labels that are out of range in the second batch only."""
    return DataLoader(TensorDataset(INPUTS, torch.cat([TARGETS[:16], TARGETS[16:] + 7])), batch_size=16)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda: {"loss": fails}, "the loss failed on .*ZeroDivisionError: it is.*fit it$"),
        (lambda: {"metric": fails}, "fails failed on .*ZeroDivisionError: it is.*fit it$"),
        (
            lambda: {"metric": Metric("odd", lambda o, t: o.sum(0), finish=fails)},
            r"finish\(\) raised ZeroDivisionError",
        ),
        (lambda: {"train": later_batches(), "epochs": 3}, "label|out of bounds"),
        (lambda: {"validation": later_batches()}, "label|out of bounds"),
    ],
)
def test_a_fault_that_only_training_shows_is_a_sentence(
    tmp_path: Path, changes: Callable[[], dict[str, Any]], words: str
) -> None:
    with pytest.raises(budgetnet.UserError, match=words) as raised:
        search(tmp_path / "run", **changes())
    assert "\n" not in str(raised.value)


def test_a_forward_pass_that_fails_is_a_sentence() -> None:
    with pytest.raises(budgetnet.UserError, match=r"^forward\(\) raised ZeroDivisionError: it is; correct it$"):
        Task(forward=fails).outputs(small(), INPUTS)


def test_a_loader_without_end_is_read_for_its_length(tmp_path: Path) -> None:
    endless = DataLoader(Endless(32), batch_size=16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of examples beyond the length
        assert search(tmp_path / "run", train=endless, validation=endless).met


def test_a_time_limit_holds_with_a_slow_cost(tmp_path: Path) -> None:
    """At 0.05 s an architecture, the check alone would ask for longer than the limit."""
    asked = []

    def slow(net: SuperNetwork) -> Callable[[Architecture], float]:
        def cost(architecture: Architecture) -> float:
            time.sleep(0.05)
            asked.append(architecture)
            return float(sum(1 for _ in architecture.live()))

        return cost

    net = resnet_fabric(1, 2, 2, input_shape=(1, 8, 8), classes=3)
    data = torch.rand(32, 1, 8, 8), TARGETS
    start, limit = time.monotonic(), 2.0
    found = search(
        tmp_path / "run", net=net, train=data, validation=data, budgets=[(slow, 4.0)], max_time=limit, epochs=50
    )
    assert found.met
    assert len(asked) * 0.05 < limit + 1
    assert len(list(found.architecture.live())) <= 4
    assert time.monotonic() - start < limit + 15  # what follows the search on a busy machine: export, report


def test_two_searches_run_in_two_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: search(tmp_path / name), "ab"))
    assert all(result.met for result in found)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
