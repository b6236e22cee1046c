"""A trained classifier for table rows, made to fit half of its multiply-adds: its own weights, its own teacher.

python examples/trained_table.py --out runs/table
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import budgetnet


def rows(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of ten numbers; the class depends on products of them."""
    x = torch.randn(count, 10, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] * x[:, 1] + x[:, 2] > 0).long() + (x[:, 3] * x[:, 4] > 0.5).long()


def trained_model() -> nn.Module:
    """The model as its user has it: trained, by whatever loop."""
    torch.manual_seed(0)
    layers = [nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 3)]
    model, (x, y) = nn.Sequential(*layers), rows(2000, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    for _ in range(150):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/trained-table"))
    out = parser.parse_args().out
    net = budgetnet.from_model(trained_model(), torch.zeros(2, 10))
    data = rows(2000, 1), rows(500, 2), rows(1000, 3)
    result = budgetnet.search(net, *data, budgets=["macs<=50%"], epochs=6, out=out / "run", quiet=True)
    before = result.summary.before
    for name, was, now in before.compared(result.summary):
        print(f"{name}: {was} before, {now} after")
    print(f"narrowed or dropped: {'; '.join(before.removed)}")
    print(f"teacher: {before.teacher}; certified: {'yes' if result.met else 'no'}")


if __name__ == "__main__":
    main()
