"""Small trained models, as a user has them, and searches from their weights that take a second."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet import SuperNetwork, from_model
from budgetnet.strategies.trained import TrainedRecipe, trained
from tests.models import BasicBlock, ResNet
from tests.small_runs import CLASSES, INPUTS, vectors


@cache
def weights_of_mlp() -> dict[str, Tensor]:
    """A table classifier, trained for a moment."""
    torch.manual_seed(0)
    model = untrained_mlp()
    x, y = vectors(256, 5)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def untrained_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(INPUTS, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, CLASSES)
    )


def trained_mlp() -> nn.Module:
    model = untrained_mlp()
    model.load_state_dict(weights_of_mlp())
    return model.eval()


def table_net() -> SuperNetwork:
    """A space for `tests.trained_runs:table_net` on a command line."""
    return from_model(trained_mlp(), torch.zeros(2, INPUTS), slices=4, name="table")


def small_resnet() -> nn.Module:
    torch.manual_seed(3)
    return ResNet([BasicBlock(4, 4), BasicBlock(4, 8, 2), BasicBlock(8, 8)], 4, 8)


def quick(**changes: Any) -> TrainedRecipe:
    """The recipe for trained weights, over in a moment."""
    sizes = {"batch_size": 32, "groups": 4, "choose_examples": 64, "importance_examples": 96}
    return trained(2).changed({**sizes, "lr": 0.02, "race_epochs": 0.4, **changes})
