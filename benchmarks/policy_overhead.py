"""What does learning the architecture cost beside learning the weights? Its share of a search step at its hardest.

ResNet fabric of width 18 (630 edges), budget on steps(4), one architecture for each of 128 examples. Timed: sampling,
costs, estimator and multiplier (`Policy`), against the whole step with forward, backward and SGD. One thread.

    python -m benchmarks.policy_overhead [--large 2] [--small 12]
"""

from __future__ import annotations

import time

import torch

from benchmarks._common import Answer, answer, arguments, pin_threads, write_answers
from benchmarks._networks import BATCH, LARGE, SMALL, Size, optimizer_of
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.strategies.policy import Policy, PolicySettings, default_rate
from budgetnet.strategies.start import budgeted_start
from budgetnet.training.tasks import Task

BAR = 0.05
BUDGET = "steps(4)<=50%"
WARMUPS = 1


def shares(size: Size, repeats: int) -> list[float]:
    """The policy's share of each step."""
    net, (inputs, targets) = size.fabric(width=18).train(), size.batch()
    budgets, task = parse_all([BUDGET], net), Task()
    distribution = budgeted_start(budgets, net.graph, check(profile(budgets, 0), 0)).distribution(net.graph)
    policy = Policy(distribution, budgets, PolicySettings(default_rate(1000)))
    optimizer, generator = optimizer_of(net), torch.Generator().manual_seed(0)
    found = []
    for _ in range(repeats + WARMUPS):
        start = time.perf_counter()
        draw = distribution.sample(BATCH, generator)
        sampled = time.perf_counter()
        losses = task.group_losses(net(inputs, draw.gates), targets, BATCH)
        optimizer.zero_grad(set_to_none=True)
        losses.mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        trained = time.perf_counter()
        policy.update(draw, losses, inputs)
        end = time.perf_counter()
        found.append((sampled - start + end - trained) / (end - start))
    return found[WARMUPS:]


def main() -> None:
    """Both sizes."""
    options = arguments(__doc__, large=2, small=12)
    pin_threads(1)
    answers: list[Answer] = []
    for size, repeats in ((LARGE, options.large), (SMALL, options.small)):
        answers.append(answer(f"sampling + costs + estimator, share of a step, {size}", shares(size, repeats), BAR))
    write_answers("policy_overhead", answers, seeds=[0], budget=BUDGET)


if __name__ == "__main__":
    main()
