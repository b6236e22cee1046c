"""A trained one-dimensional CNN for signals, and the two smaller ones that two budgets ask for, from one preparation.

python examples/trained_signal.py --out runs/signal
"""

import argparse
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import budgetnet


def signals(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Waves of four frequencies in noise, 64 samples each."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(4, (count,), generator=generator)
    phase = 2 * math.pi * torch.rand(count, 1, generator=generator)
    wave = torch.sin(phase + (kind[:, None] + 1) * torch.arange(64) * 0.15)
    return (wave + 0.8 * torch.randn(count, 64, generator=generator))[:, None], kind


def trained_model() -> nn.Module:
    """The model as its user has it: trained, by whatever loop."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 7, 2, 3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Conv1d(16, 24, 5, 2, 2),
        nn.BatchNorm1d(24),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(96, 4),
    )
    x, y = signals(1000, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/trained-signal"))
    out = parser.parse_args().out
    net = budgetnet.from_model(trained_model(), torch.zeros(2, 1, 64), slices=4)
    data = signals(1000, 1), signals(300, 2), signals(500, 3)
    budgets = ["macs<=60%", "macs<=30%"]
    for result in budgetnet.search_family(net, *data, budgets=budgets, epochs=4, out=out, quiet=True):
        summary, before = result.summary, result.summary.before
        print(f"{summary.budgets[0].text}: {before.macs} multiply-adds before, {summary.macs} after")
        print(f"  test accuracy {before.test_score:.3f} before, {summary.test_score:.3f} after")
        print(f"  certified: {'yes' if result.met else 'no'}")


if __name__ == "__main__":
    main()
