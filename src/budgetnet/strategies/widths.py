"""Networks that nobody had to think about: uniform widths and random widths within the budgets.

No choice should be believed unless it beats them: they are candidates of every search from trained weights.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from budgetnet.network.graph import Graph
from budgetnet.strategies.moves import Moves

DROPPED_LAST = 1e6
"""The preference of edges that are no units: branches stay, where the budgets allow it."""


def uniform_widths(moves: Moves) -> Tensor | None:
    """The same share of the units of every bundle, up to one unit, with every branch kept; None without bundles.

    Args:
        moves: The moves within the budgets.

    Returns:
        Live gates; None also if the budgets ask for dropped branches.
    """
    if not moves.graph.bundles:
        return None
    depth = unit_depth(moves.graph)
    plain = replace(moves, preference=torch.where(depth > 0, -depth, DROPPED_LAST), noise=0.0)
    gates = plain.shrink(moves.graph.full.gates())
    return None if gates is None else plain.fill(gates)


def random_widths(moves: Moves) -> Tensor | None:
    """A random width for every bundle, filled from its first unit on; random edges where there are no bundles."""
    noise = torch.rand(len(moves.graph.edges), generator=moves.generator)
    for units in moves.graph.bundles.values():
        noise[list(units)] = noise[units[0]].clone() * math.e  # one number for a bundle: its depth decides the rest
    preference = torch.where(unit_depth(moves.graph) > 0, noise - unit_depth(moves.graph), noise)
    plain = replace(moves, preference=preference, noise=0.0)
    gates = plain.shrink(moves.graph.full.gates())
    return None if gates is None else plain.fill(gates)


def unit_depth(graph: Graph) -> Tensor:
    """The place of each unit in its bundle, as a share in (0, 1]; 0 for edges that are no units."""
    depth = torch.zeros(len(graph.edges))
    for units in graph.bundles.values():
        depth[list(units)] = torch.arange(1, len(units) + 1) / len(units)
    return depth
