"""How long a run will take."""

from __future__ import annotations

import itertools
import time

import torch

from budgetnet.strategies.loop import Loop


def estimate(loop: Loop, count: int = 3) -> float:
    """Seconds of a whole run, from a few timed steps of each phase. The loop is used up by it."""
    total = 0.0
    for phase in filter(loop.total_steps, ("warm-up", "search", "race", "finish")):
        if phase in ("race", "finish") and not loop.fixed:
            gates = loop.policy.distribution.sample(16, torch.Generator().manual_seed(0)).gates
            connected = gates[loop.net.graph.live(gates).any(1)]
            loop.single_out(loop.net.graph.architecture(connected[0]) if len(connected) else loop.fallback)
        times = []
        for batch in itertools.islice(loop.train.training(0), count):
            clock = time.monotonic()
            loop.train_step(phase, batch, 0.5)
            times.append(time.monotonic() - clock)
        steps = loop.total_steps(phase) if phase != "race" else round(loop.recipe.losers_epochs * loop.train.steps)
        total += steps * min(times)
    return total * (1 + loop.recipe.settle_share)
