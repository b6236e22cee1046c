"""Training steps of a super network: architectures are drawn from Γ, and each has its share of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import torch
from torch import Tensor, nn

from budgetnet.data.feeds import Batch
from budgetnet.data.nested import leaves, rows, select
from budgetnet.data.seeds import generator_of
from budgetnet.network.distribution import Draw
from budgetnet.strategies.state import SearchState
from budgetnet.training.fits import Forward, Step, Worker
from budgetnet.training.processes import ALONE, Processes

PER_EXAMPLE = 0
"""Groups: one architecture per example, the paper's setting."""
CLOSE = 0.9
"""A swap of rows between two processes must leave at most this share of the difference between their work."""
SWAPS = 8
"""At most: large batches are even without them."""


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
        """The architectures of a step: this process's share of those that one process alone would draw."""
        groups = batch if self.groups == PER_EXAMPLE else min(-(-self.groups // processes.count), batch)
        count, source = groups * processes.count, generator_of(phase, self.seed, number)
        distribution = state.searching.distribution
        draw = distribution.sample(count, source, stratified=self.stratified, connected=self.connected)
        if processes.alone:
            return draw
        mine = evenly(state.work(draw.gates).tolist(), processes)
        return Draw(draw.gates[mine], draw.log_prob[mine])


def evenly(work: Sequence[float], processes: Processes) -> list[int]:
    """The rows of this process, in their order, where every process has as many and about as much work.

    Rows are given to whoever has the least work, the largest first. The two with the most and the least then swap
    rows while that helps.

    Args:
        work: Of every row; there are a multiple of the processes of them.
        processes: The processes.

    Returns:
        Numbers of rows.
    """
    most = len(work) // processes.count
    hands: list[list[int]] = [[] for _ in range(processes.count)]
    loads = [(0.0, hand) for hand in range(processes.count)]  # a heap of those that still take rows
    for row in sorted(range(len(work)), key=lambda row: -work[row]):
        load, hand = heappop(loads)
        hands[hand].append(row)
        if len(hands[hand]) < most:
            heappush(loads, (load + work[row], hand))
    for _ in range(SWAPS):
        by_load = sorted(hands, key=lambda hand: sum(work[row] for row in hand))
        free, full = by_load[0], by_load[-1]
        gap = sum(work[row] for row in full) - sum(work[row] for row in free)
        left, a, b = min((abs(gap - 2 * (work[a] - work[b])), a, b) for a in full for b in free)
        if left >= gap * CLOSE:
            break
        full[full.index(a)], free[free.index(b)] = b, a
    return sorted(hands[processes.rank])


@dataclass
class SampledStep(Step):
    """A step of the super network: architectures are drawn, and each group of the batch has a loss of its own."""

    state: SearchState
    sampling: Sampling
    phase: str
    learns: bool = False
    """Whether Γ and the multipliers learn, too."""

    def forwards(self, trainer: Worker, module: nn.Module, batch: Batch, number: int) -> Iterator[Forward]:
        """See `Step`: a micro-batch has as many architectures as the device wants, on their own examples."""
        size = rows(batch[0])
        with trainer.watch.part("sampling and plan"):
            draw = self.draw(size, number, trainer.processes)
        groups = len(draw.gates)
        most = trainer.device.architectures or groups
        for first in range(0, groups, most):
            gates = draw.gates[first : first + most]
            part = _rows_of(batch, size, groups, first, first + len(gates)) if most < groups else batch
            found = self._run(trainer, module, part, gates)
            yield found._replace(drawn=draw, share=len(gates) / groups)

    def _run(self, trainer: Worker, module: nn.Module, batch: Batch, gates: Tensor) -> Forward:
        """The forward pass of some architectures, each on its share of the examples."""
        inputs, targets = batch
        if trainer.watch.running:
            with trainer.watch.part("sampling and plan"):  # remembered: it will not be made again
                self.state.net.plan(gates, rows(inputs), next(leaves(inputs)).device)
        with trainer.watch.part("forward"):
            outputs = trainer.outputs(module, inputs, gates)
            return Forward(outputs, trainer.task.group_losses(outputs, targets, len(gates)))

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


def _rows_of(batch: Batch, size: int, groups: int, first: int, end: int) -> Batch:
    """The examples of some neighbouring groups of a batch, as `group_of_rows` shares them out."""
    each, more = divmod(size, groups)
    part = slice(*(each * group + min(group, more) for group in (first, end)))
    return select(batch[0], part), select(batch[1], part)


class FullStep(SampledStep):
    """A step of the whole super network (the paper's warm-up)."""

    def draw(self, batch: int, number: int, processes: Processes = ALONE) -> Draw:
        """All edges, for the whole batch."""
        return Draw(torch.ones(1, len(self.state.net.graph.edges), dtype=torch.bool), torch.zeros(1))
