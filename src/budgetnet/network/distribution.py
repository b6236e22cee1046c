"""Γ: independent edge probabilities, sampled so that an edge is drawn only where the input reaches it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.network.graph import Architecture, Graph

INITIAL_LOGIT = 3.0
"""The paper's start: p ≈ 0.95."""
TRIES = 32
"""Draws of an architecture that is to be connected."""


class Draw(NamedTuple):
    """Sampled gates (n × edges, bool) and the log-probability of each row, differentiable in Γ."""

    gates: Tensor
    log_prob: Tensor


class EdgeDistribution(nn.Module):
    """Γ over the edges of a graph: edge e is kept with probability σ(γ_e) (paper, section 3.2).

    Args:
        graph: The graph of the super network.
        initial: γ of every edge at the beginning.
    """

    def __init__(self, graph: Graph, initial: float = INITIAL_LOGIT) -> None:
        super().__init__()
        self.graph = graph
        self.logits = nn.Parameter(torch.full((len(graph.edges),), initial))

    @property
    def probabilities(self) -> Tensor:
        """p of each edge; 1 for a fixed one."""
        return torch.sigmoid(self.logits.detach()).masked_fill(self.graph.fixed.to(self.logits.device), 1.0)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        *,
        stratified: bool = False,
        connected: bool = False,
    ) -> Draw:
        """Draws architectures. Edges whose source the input does not reach are not drawn: 0, and no part of log_prob.

        Fixed edges are kept and are no part of log_prob either. Each architecture follows Γ by itself.

        Args:
            n: How many.
            generator: The source of random numbers; torch's own if None.
            stratified: Whether they share one uniform number an edge, shifted by 1/n from each to the next: n·p of them
                keep an edge, rounded up or down, and they are neighbours on a ring.
            connected: Whether those that do not reach the sink are drawn again, as often as is reasonable: they follow
                Γ given that they connect. `log_prob` is Γ's all the same; the difference is the same for all of them,
                and advantages that sum to zero do not see it.

        Returns:
            Gates and their log-probabilities.
        """
        gates = self._draw(n, generator, stratified)
        for _ in range(TRIES if connected else 0):
            lost = ~self.graph.live(gates).any(1)
            if not lost.any():
                break
            gates[lost] = self._draw(int(lost.sum()), generator, stratified=False)
        return Draw(gates, self.log_prob(gates))

    def _draw(self, n: int, generator: torch.Generator | None, stratified: bool) -> Tensor:
        """The input reaches a node in topological order exactly if it does so over all edges that were switched on."""
        uniform = torch.rand((1 if stratified else n, len(self.graph.edges)), generator=generator)
        if stratified:
            uniform = (uniform + torch.arange(n)[:, None] / n) % 1
        switched = (uniform < self.probabilities.cpu()) | self.graph.fixed
        return switched & self.graph.reached(switched)[:, self.graph.sources]

    def log_prob(self, gates: Tensor, logits: Tensor | None = None) -> Tensor:
        """log P(H | Γ) of architectures that can be drawn.

        Args:
            gates: Architectures (n × edges, bool).
            logits: γ of each edge; those of the present Γ if None.

        Returns:
            n log-probabilities, differentiable in the logits.
        """
        logits = self.logits if logits is None else logits
        drawn = (self.graph.reached(gates)[:, self.graph.sources] & ~self.graph.fixed).to(logits.device)
        on = gates.to(logits.device)
        terms = torch.where(on, F.logsigmoid(logits), F.logsigmoid(-logits))
        return (terms * drawn).sum(1)

    def mode(self) -> Architecture:
        """The edges with p > 0.5 and, where these do not connect source and sink, the most probable path as well."""
        gates = (self.logits.detach() > 0).cpu() | self.graph.fixed
        if not self.graph.live(gates[None]).any():
            gates[self._most_probable_path()] = True
        return self.graph.architecture(gates)

    def _most_probable_path(self) -> list[int]:
        cost = (-F.logsigmoid(self.logits.detach().double())).masked_fill(self.graph.fixed, 0.0).tolist()
        return self.graph.shortest_path(cost)

    def entropy(self) -> Tensor:
        """The entropy of each edge, in bits; 0 for a fixed one."""
        p = torch.sigmoid(self.logits.detach().double())
        log_p, log_q = F.logsigmoid(self.logits.detach().double()), F.logsigmoid(-self.logits.detach().double())
        return (-(p * log_p + (1 - p) * log_q) / math.log(2)).masked_fill(self.graph.fixed.to(p.device), 0.0)
