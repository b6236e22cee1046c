"""Forty mistakes that people make with `budgetnet.search`: each is one sentence with a remedy, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import budgetnet
from budgetnet.errors import UserError
from tests.small_runs import mlp, vectors

X, Y = vectors(64)
HELD = vectors(32, 1)
NAN = float("nan")


class Items(Dataset[Any]):
    """A map-style data set of whatever a function gives."""

    def __init__(self, give: Callable[[int], Any], count: int = 64) -> None:
        self.give, self.count = give, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.give(index)


class Stream(IterableDataset[Any]):
    """A stream that promises 64 examples."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return 64

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X[: self.count], Y[: self.count], strict=True)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X, Y, strict=True)


def search(tmp_path: Path, **changes: Any) -> Any:
    given = {"train": (X, Y), "validation": HELD, "budgets": "macs<=60%", "epochs": 1, "batch_size": 16}
    return budgetnet.search(**{"net": mlp(), "out": tmp_path / "run", "quiet": True, **given, **changes})


def boom(index: int) -> Any:
    raise KeyError("photo.png")


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a module": ({"net": torch.nn.Linear(6, 3)}, "not a super network"),
    "no data": ({"train": None}, "no training or no validation data"),
    "a path": ({"train": "photos"}, "a text, 'photos'"),
    "a number": ({"train": 7}, "cannot read examples from int"),
    "inputs alone": ({"train": X}, "Tensor"),
    "a dict without labels": ({"train": {"x": X, "answer": Y}}, "labels, label, targets"),
    "labels alone": ({"train": {"labels": Y}}, "beside the inputs"),
    "fewer labels": ({"train": (X, Y[:9])}, "64 inputs have targets of shape (9,)"),
    "no examples": ({"train": (X[:0], Y[:0])}, "give at least one example"),
    "NaN inputs": ({"train": (X * NAN, Y)}, "inputs hold NaN"),
    "NaN targets": ({"train": (X, Y * NAN), "loss": "mse"}, "targets hold NaN"),
    "complex inputs": ({"train": (X + 0j, Y)}, "complex64"),
    "complex targets": ({"train": (X, Y + 0j)}, "complex64"),
    "texts": ({"train": (np.array(["a"] * 64), Y)}, "cannot become a tensor"),
    "float labels": ({"train": (X, Y.float())}, "loss='mse'"),
    "one-hot labels": ({"train": (X, torch.nn.functional.one_hot(Y))}, "give N class numbers"),
    "a label too large": ({"train": (X, Y + 1)}, "label 3 is outside the range of 3 classes"),
    "a negative label": ({"train": (X, Y - 1)}, "label -1"),
    "five columns": ({"train": (X[:, :5], Y)}, "build it with input_shape=(5,)"),
    "whole numbers": ({"train": (X.long(), Y)}, "input_dtype=torch.int64"),
    "other validation data": ({"validation": (X[:, :5], Y)}, "inputs of 5, the network takes 6"),
    "an empty data set": ({"train": Items(lambda i: (X[i], Y[i]), 0)}, "holds no example"),
    "a data set of inputs": ({"train": Items(lambda i: X[i])}, "example 0 is Tensor"),
    "a data set that fails": ({"train": Items(boom)}, "raised KeyError for example 0"),
    "unequal examples": ({"train": Items(lambda i: (X[i, : 5 + i % 2], Y[i]))}, "bring all of them to one size"),
    "an empty loader": ({"train": DataLoader(TensorDataset(X[:4], Y[:4]), 8, drop_last=True)}, "gives no batch"),
    "a loader of inputs": ({"train": DataLoader(TensorDataset(X), 8)}, "must be a pair"),
    "a stream without length": ({"train": Endless()}, "how many examples"),
    "a stream that ends early": ({"train": Stream(20)}, "ended after 2 of the 4 batches"),
    "augmented loader": ({"train": Items(lambda i: (X[i], Y[i])), "augmentation": lambda *a: a}, "tensors in memory"),
    "an unknown loss": ({"loss": "hinge"}, "there is no loss named 'hinge'"),
    "an unknown metric": ({"metric": "f1"}, "there is no metric named 'f1'"),
    "a loss of the wrong length": ({"loss": lambda o, t: o[:3, 0]}, "for 16 examples"),
    "a loss without gradient": ({"loss": lambda o, t: o.detach().sum(1)}, "no gradient to learn by"),
    "a loss that is a text": ({"loss": lambda o, t: "low"}, "gave a str"),
    "a loss that fails": ({"loss": lambda o, t: o @ t.float()}, "the loss failed on outputs"),
    "a metric that fails": ({"metric": lambda o, t: o[:, 9]}, "failed on outputs"),
    "too few targets for mse": ({"loss": "mse"}, "gives 3 values for an example, its targets have 1"),
    "forward gives a tuple": ({"forward": lambda model, x: (model(x), 0)}, "forward() gave tuple"),
    "no budget": ({"budgets": []}, "no budget was given"),
    "a budget too small": ({"budgets": {"macs": 1}}, "cannot be met"),
    "an unknown optimizer": ({"optimizer": "adam2"}, "there is no optimizer 'adam2'"),
    "no optimizer": ({"optimizer": lambda parameters: 3}, "the optimizer is int"),
    "an unknown schedule": ({"schedule": "steps"}, "there is no schedule 'steps'"),
    "a learning rate of zero": ({"lr": 0.0}, "lr=0.0 is out of range"),
    "an unknown setting": ({"epoch": 3}, "epoch"),
    "a device that is not there": ({"device": "cuda"}, "no CUDA device here"),
}


@pytest.mark.parametrize(("changes", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_sentence(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        search(tmp_path, **changes)
    sentence = str(caught.value)
    assert words in sentence
    assert "\n" not in sentence
    assert ";" in sentence or ":" in sentence, "what to do about it follows"
    assert not (tmp_path / "run" / "summary.json").exists()


def test_there_are_forty_of_them() -> None:
    assert len(MISTAKES) >= 40
