"""Architectures that were scored on shared weights and held-out data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from budgetnet.budgets.budget import Budget, within_all
from budgetnet.data.feeds import Feed
from budgetnet.network.extract import extract
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import finite
from budgetnet.training.device import Device
from budgetnet.training.evaluation import evaluate, recalibrate
from budgetnet.training.tasks import Task


@dataclass(frozen=True)
class Evaluated:
    """An entry: an architecture (a row of gates), when it was scored, its score and its costs."""

    gates: Tensor
    phase: str
    epoch: int
    loss: float
    metric: float
    costs: Mapping[str, float]
    feasible: bool


def lines(entries: Sequence[Evaluated], metric: str) -> bytes:
    """Entries as lines of JSON, the metric under its name."""
    values = [
        {
            "kept": np.packbits(entry.gates.numpy()).tobytes().hex(),
            "phase": entry.phase,
            "epoch": entry.epoch,
            **finite({f"validation_{metric}": entry.metric, "validation_loss": entry.loss}),
            "costs": dict(entry.costs),
            "feasible": entry.feasible,
        }
        for entry in entries
    ]
    return "".join(f"{json.dumps(value)}\n" for value in values).encode()


@dataclass
class Archive:
    """Scores architectures of a super network, and keeps what it has scored."""

    net: SuperNetwork
    task: Task
    train: Feed
    validation: Feed
    budgets: Sequence[Budget]
    examples: int
    """Of the validation data that an architecture is scored on."""
    device: Device = field(default_factory=Device)
    entries: list[Evaluated] = field(default_factory=list)

    def score(self, gates: Tensor, phase: str, epoch: int) -> Evaluated:
        """An entry for an architecture with the weights of the super network and batch-norm statistics of its own."""
        model = extract(self.net, self.net.graph.architecture(gates))
        recalibrate(model, self.task, self.train)
        loss, metric = evaluate(model, self.task, self.validation.evaluation(self.examples), self.device)
        costs = {budget.name: float(budget.meter.evaluate(gates[None])[0]) for budget in self.budgets}
        feasible = bool(within_all(self.budgets, gates[None])[0]) if self.budgets else True
        self.entries.append(Evaluated(gates, phase, epoch, loss, metric, costs, feasible))
        return self.entries[-1]

    def scores(self, entry: Evaluated) -> dict[str, float]:
        """The scores of an entry for the records, the metric by its name."""
        return {f"validation_{self.task.metric.name}": entry.metric, "validation_loss": entry.loss}
