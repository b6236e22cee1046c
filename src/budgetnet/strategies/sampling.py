"""Training steps of a super network: architectures are drawn from Γ, and each has its share of the batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from budgetnet.data.feeds import Batch
from budgetnet.data.nested import leaves, rows
from budgetnet.data.seeds import generator_of
from budgetnet.network.distribution import Draw
from budgetnet.strategies.state import SearchState
from budgetnet.training.fits import Forward, Step, Worker
from budgetnet.training.processes import ALONE, Processes

PER_EXAMPLE = 0
"""Groups: one architecture per example, the paper's setting."""


@dataclass(frozen=True)
class Sampling:
    """How the architectures of a batch are drawn from Γ.

    Args:
        seed: What they follow from.
        groups: Architectures that share a batch, or `PER_EXAMPLE`.
        stratified: Whether every edge is shared out evenly among them; each still follows Γ by itself.
        connected: Whether architectures that do not reach the output are resampled.
    """

    seed: int
    groups: int
    stratified: bool = True
    connected: bool = True

    def draw(self, state: SearchState, phase: str, number: int, batch: int, processes: Processes = ALONE) -> Draw:
        """The architectures of a step, each process's own: together they have as many as one process alone."""
        groups = batch if self.groups == PER_EXAMPLE else min(-(-self.groups // processes.count), batch)
        source = generator_of(phase, self.seed, number, *(() if processes.alone else (processes.rank,)))
        distribution = state.searching.distribution
        return distribution.sample(groups, source, stratified=self.stratified, connected=self.connected)


@dataclass
class SampledStep(Step):
    """A step of the super network: architectures are drawn, and each group of the batch has a loss of its own."""

    state: SearchState
    sampling: Sampling
    phase: str
    learns: bool = False
    """Whether Γ and the multipliers learn, too."""

    def forward(self, trainer: Worker, module: nn.Module, batch: Batch, number: int) -> Forward:
        """See `Step`."""
        inputs, targets = batch
        with trainer.watch.part("sampling and plan"):
            draw = self.draw(rows(inputs), number, trainer.processes)
            if trainer.watch.running:
                place = next(leaves(inputs)).device
                self.state.net.plan(draw.gates, rows(inputs), place)  # remembered: it will not be made again
        with trainer.watch.part("forward"):
            outputs = trainer.outputs(module, inputs, draw.gates)
            return Forward(outputs, trainer.task.group_losses(outputs, targets, len(draw.gates)), draw)

    def draw(self, batch: int, number: int, processes: Processes = ALONE) -> Draw:
        """The architectures of a step."""
        return self.sampling.draw(self.state, self.phase, number, batch, processes)

    def update(self, trainer: Worker, forward: Forward, batch: Batch, progress: float) -> dict[str, float]:
        """See `Step`: one step of the policy gradient, in the search phase."""
        groups, late = len(forward.drawn.gates), any(b.meter.late for b in self.state.budgets)
        if not self.learns or groups * trainer.processes.count < 2 or late:
            return {}
        with trainer.watch.part("policy and costs"):
            policy = self.state.searching
            rate = policy.settings.rate
            losses = trainer.device.later(trainer.processes.gather(forward.losses.detach()))
            return {"policy_lr": rate, **policy.update(forward.drawn, losses, batch[0], trainer.device)}


class FullStep(SampledStep):
    """A step of the whole super network (the paper's warm-up)."""

    def draw(self, batch: int, number: int, processes: Processes = ALONE) -> Draw:
        """All edges, for the whole batch."""
        return Draw(torch.ones(1, len(self.state.net.graph.edges), dtype=torch.bool), torch.zeros(1))
