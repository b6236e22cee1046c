"""Score-function losses and baselines: pure functions of tensors, one row per group of the batch."""

from __future__ import annotations

from torch import Tensor

from budgetnet.errors import UserError


def batch_mean(objective: Tensor) -> Tensor:
    """D − mean(D): the paper's baseline (section 3.3). Zero for a single group."""
    return objective - objective.mean()


def leave_one_out(objective: Tensor) -> Tensor:
    """D_g − mean of the others: unbiased, and `batch_mean` times G/(G−1)."""
    groups = len(objective)
    if groups < 2:
        raise UserError(f"{groups} architecture per batch has no policy gradient; use 2 groups or more")
    return (objective - objective.mean()) * (groups / (groups - 1))


def score_function_loss(log_prob: Tensor, advantage: Tensor) -> Tensor:
    """Σ_g log P(H_g | Γ) · (D_g − baseline): its gradient in Γ is the policy gradient (section 3.3, last equation)."""
    return (log_prob * advantage.detach().to(log_prob)).sum()
