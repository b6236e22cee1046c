"""The state of a search, which the phases hand on and a checkpoint holds."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from budgetnet.budgets.budget import Budget
from budgetnet.costs import Meter, bind
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.archive import Archive, Evaluated
from budgetnet.strategies.policy import Policy
from budgetnet.strategies.race import Race
from budgetnet.strategies.start import Start
from budgetnet.training.fits import Fit
from budgetnet.training.trainer import Trainer

DONE = "done"
"""The phase of a state that has been through all of them."""
SHARED, INITIAL = "shared", "initial"


@dataclass
class Inherited:
    """What a search from trained weights knows besides.

    Args:
        importance: Of every edge.
        uniform: The racer with uniform widths, as a row of gates.
        losses: Of the winner of the race and of uniform widths, on the batches by which racers are judged.
    """

    importance: Tensor
    uniform: Tensor | None = None
    losses: dict[str, float] = field(default_factory=dict)


@dataclass
class SearchState:
    """Everything that a search has come to.

    Args:
        net: The super network. Networks are extracted with the weights that it holds.
        fallback: An architecture that meets every budget; or the one to train, if it is fixed.
        archive: Scores architectures, and keeps those that were scored.
        phase: The name of the phase that comes next or is in progress.
        start: Γ's start; None if the architecture is fixed.
        policy: Γ and the multipliers; None if the architecture is fixed.
        initial: The initial weights of the super network, if candidates are to race from them.
        origin: Which weights the super network holds: shared ones, or the initial ones from the race on.
        fit: The training in progress.
        architecture: The architecture that is trained alone.
        runners_up: The next best architectures, should a measured budget fail.
        race: The race, while there is one.
        raced: Epochs of the winner's race, which count as a part of its finish.
        steps_back: How many finished networks failed a measured budget.
        inherited: What is known of trained weights; None for a search from fresh ones.
    """

    net: SuperNetwork
    fallback: Architecture
    archive: Archive
    phase: str
    start: Start | None = None
    policy: Policy | None = None
    initial: Mapping[str, Tensor] | None = None
    origin: str = SHARED
    fit: Fit | None = None
    architecture: Architecture | None = None
    runners_up: list[Architecture] = field(default_factory=list)
    race: Race | None = None
    raced: float = 0.0
    steps_back: int = 0
    inherited: Inherited | None = None

    @property
    def budgets(self) -> Sequence[Budget]:
        """The budgets."""
        return self.archive.budgets

    @property
    def searching(self) -> Policy:
        """Γ and the multipliers of a search."""
        assert self.policy is not None, "a fixed architecture has no Γ"
        return self.policy

    def work(self, gates: Tensor) -> Tensor:
        """About what it takes to train architectures: by half their multiply-adds, by half their live edges.

        Both are over those of the full network: small kernels take their time whatever they compute.
        """
        edges = self.net.graph.live(gates).sum(1) / len(self.net.graph.edges)
        return edges + self._macs.evaluate(gates) / self._macs.full

    @functools.cached_property
    def _macs(self) -> Meter:
        return bind("macs", self.net)

    @property
    def can_step_back(self) -> bool:
        """Whether there is another architecture than the one that is trained."""
        return self.architecture not in (None, self.fallback.live())

    def single_out(self, architecture: Architecture, trainer: Trainer) -> Fit:
        """From here on this architecture alone is trained, with the weights that it has in the super network."""
        self.architecture = architecture
        self.fit = trainer.begin(extract(self.net, architecture))
        return self.fit

    def use_initial_weights(self) -> None:
        """From here on networks are extracted with initial weights; the shared ones are no longer needed."""
        assert self.initial is not None
        self.net.load_state_dict(self.initial)
        self.origin, self.initial = INITIAL, None

    def drop_initial_weights(self) -> None:
        """There is no race: networks go on with shared weights."""
        self.initial = None

    def state_dict(self) -> dict[str, Any]:
        """Nested values with tensors, for a checkpoint."""
        alone = self.fit is not None and self.fit.module is not self.net
        needed = not alone or self.can_step_back or self.race is not None
        fit = self.fit
        return {
            "phase": self.phase,
            "net": dict(self.net.state_dict()) if needed else None,
            "initial": None if self.initial is None else dict(self.initial),
            "origin": self.origin,
            "start": None if self.start is None else {**vars(self.start), "expected": dict(self.start.expected)},
            "policy": None if self.policy is None else self.policy.state_dict(),
            "architecture": None if self.architecture is None else self.architecture.gates(),
            "step": 0 if fit is None else fit.step,
            "weights": dict(fit.module.state_dict()) if fit is not None and alone else None,
            "optimizer": None if fit is None else fit.optimizer.state_dict(),
            "race": None if self.race is None else self.race.state_dict(),
            "raced": self.raced,
            "runners_up": [architecture.gates() for architecture in self.runners_up],
            "steps_back": self.steps_back,
            "inherited": None if self.inherited is None else vars(self.inherited),
            "archive": [vars(entry) for entry in self.archive.entries],
            "measured": _measured_state(self.budgets),
        }

    def load_state_dict(self, values: Mapping[str, Any], trainer: Trainer) -> None:
        """Goes on from the values of a checkpoint; KeyError, TypeError, ValueError or RuntimeError if they do not fit.

        Args:
            values: What `state_dict` gave.
            trainer: Makes the optimizer of the training in progress.
        """
        graph = self.net.graph
        self.phase, self.origin, self.initial = values["phase"], values["origin"], values["initial"]
        if values["net"] is not None:
            self.net.load_state_dict(values["net"])
        self.start = None if values["start"] is None else Start(**values["start"])
        if self.policy is not None:
            self.policy.load_state_dict(values["policy"])
        gates = values["architecture"]
        self.architecture = None if gates is None else graph.architecture(_row(gates, len(graph.edges)))
        self.fit = None
        if values["weights"] is not None and self.architecture is not None:
            self.single_out(self.architecture, trainer).module.load_state_dict(values["weights"])
        elif values["optimizer"] is not None:
            self.fit = trainer.begin(self.net)
        if self.fit is not None:
            self.fit.optimizer.load_state_dict(values["optimizer"])
            self.fit.step = values["step"]
        self.race = None if values["race"] is None else Race(**values["race"])
        self.raced, self.steps_back = values["raced"], values["steps_back"]
        inherited = values.get("inherited")
        self.inherited = None if inherited is None else Inherited(**inherited)
        self.runners_up = [graph.architecture(_row(row, len(graph.edges))) for row in values["runners_up"]]
        self.archive.entries = [Evaluated(**entry) for entry in values["archive"]]
        _load_measured(self.budgets, values["measured"])


def _row(gates: Any, edges: int) -> Tensor:
    """A row of gates; ValueError if it is none of this graph."""
    if not isinstance(gates, Tensor) or gates.shape != (edges,) or gates.dtype is not torch.bool:
        raise ValueError("these are no gates of this graph")
    return gates


def _measured_state(budgets: Sequence[Budget]) -> dict[str, Any]:
    """What measured costs have learned about this machine."""
    return {b.name: b.meter.cost.state_dict() for b in budgets if b.meter.cost.measured}


def _load_measured(budgets: Sequence[Budget], measured: Mapping[str, Any]) -> None:
    for budget in budgets:
        if budget.name in measured:
            budget.meter.cost.load_state_dict(measured[budget.name])
