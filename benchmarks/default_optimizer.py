"""Which optimizer should train networks without batch norm, if nobody says which? It must not diverge on any of these.

The problems are those of the examples: a table with targets of two scales, a signal, token ids; and a larger MLP on the
table. Each is searched with the default recipe under 60 % of the multiply-adds; scores are on validation data, R² or
accuracy, and a run that diverged has none.

    python -m benchmarks.default_optimizer [--seeds 0,1,2]      about 4 minutes of one core
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks._common import numbers, pin_threads, summarise, write_result
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.data.feeds import make_feed
from budgetnet.errors import Diverged
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.strategies.recipes import fast
from budgetnet.strategies.runner import Runner
from budgetnet.training.evaluation import judge
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

SETTINGS: dict[str, dict[str, Any]] = {
    "sgd 0.2": {"optimizer": "sgd", "lr": 0.2},
    "sgd 0.05, clip 1": {"optimizer": "sgd", "lr": 0.05, "clip": 1.0},
    **{
        f"adamw {lr:g}, clip 1": {"optimizer": "adamw", "lr": lr, "weight_decay": 0.01, "clip": 1.0}
        for lr in (1e-3, 3e-3, 5e-3, 1e-2, 2e-2)
    },
}
"""The recipe's own first."""
BUDGET, EPOCHS, BATCH = "macs<=60%", 8, 64


@dataclass(frozen=True)
class Problem:
    """A network without batch norm, its data and its loss."""

    net: SuperNetwork
    inputs: Tensor
    targets: Tensor
    loss: str = "cross_entropy"


class Words(nn.Embedding):
    """The mean over the words that are there: 0 is padding."""

    def forward(self, ids: Tensor) -> Tensor:
        """Token ids N×L to N×features."""
        mask = (ids != 0).unsqueeze(2).float()
        return (super().forward(ids) * mask).sum(1) / mask.sum(1).clamp_min(1)


def dense(layers: int, width: int, stem: nn.Module, outputs: int, **about: Any) -> SuperNetwork:
    """Linear edges between every pair of layers that are at most three apart."""
    pairs = [(a, b) for a, b in itertools.combinations(range(layers + 1), 2) if b - a <= 3]
    edges = [Edge(f"{a}-{b}", f"h{a}", f"h{b}") for a, b in pairs]
    modules = {edge.name: nn.Linear(width, width) for edge in edges}
    return SuperNetwork(Graph(edges), modules, stem=stem, head=nn.Linear(width, outputs), activation=nn.ReLU(), **about)


def table(scale: float = 1.0, layers: int = 3, width: int = 24) -> Problem:
    """Regression on eight columns."""
    columns = 2 * torch.rand(768, 8) - 1
    price = torch.sin(3 * columns[:, 0]) + columns[:, 1] * columns[:, 2] + 0.5 * columns[:, 3]
    net = dense(layers, width, nn.Linear(8, width), 1, input_shape=(8,))
    return Problem(net, columns, scale * price[:, None], "mse")


def signal() -> Problem:
    """Which of three rhythms a wave has."""
    kind, time = torch.arange(512) % 3, torch.linspace(0, 6.28, 64)
    wave = torch.sin((kind[:, None] + 2) * time + 6.28 * torch.rand(512, 1)) + 0.5 * torch.randn(512, 64)
    edges = [Edge(f"conv{i}-{k}", f"x{i}", f"x{i + 1}") for i in range(3) for k in (3, 7)]
    convs = {edge.name: nn.Conv1d(8, 8, int(edge.name[-1]), padding="same") for edge in edges}
    stem = nn.Sequential(nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 8, 5, stride=2))
    head = nn.Sequential(nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 3))
    net = SuperNetwork(Graph(edges), convs, input_shape=(64,), stem=stem, head=head, activation=nn.ReLU())
    return Problem(net, wave, kind)


def text() -> Problem:
    """Whether most words of a sentence are of one kind."""
    ids = torch.randint(1, 50, (640, 12)) * (torch.arange(12) < torch.randint(4, 13, (640, 1)))
    positive = ((ids > 25).sum(1) > (ids > 0).sum(1) / 2).long()
    net = dense(3, 16, Words(50, 16), 2, input_shape=(12,), input_dtype=torch.int64)
    return Problem(net, ids, positive)


PROBLEMS = {
    "table": table,
    "table, targets × 10": lambda: table(10.0),
    "table, 8 layers of 128": lambda: table(1.0, 8, 128),
    "signal": signal,
    "text": text,
}


def score(name: str, settings: dict[str, Any], seed: int) -> float | None:
    """The validation score of the network that a search finds; None if it diverged."""
    torch.manual_seed(seed)
    problem = PROBLEMS[name]()
    recipe = fast(EPOCHS).changed({**settings, "batch_size": BATCH})
    held = len(problem.targets) // 5
    train = make_feed((problem.inputs[held:], problem.targets[held:]), BATCH, seed)
    validation = make_feed((problem.inputs[:held], problem.targets[:held]), BATCH, seed)
    budgets = parse_all([BUDGET], problem.net)
    fallback = check(profile(budgets, seed), seed)
    task = Task.of(problem.loss, None, None)
    trainer = Trainer(task, train, validation, recipe.make_optimizer, clip=recipe.clip)
    start = recipe.start(budgets, problem.net.graph, fallback)
    try:
        outcome = Runner.of_search(recipe, problem.net, budgets, fallback, start, trainer, seed).run()
    except Diverged:
        return None
    return judge(outcome.model, task, validation.evaluation()).metric


def compare(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """A row for each setting: its scores by problem, and how many runs diverged."""
    rows = []
    for title, settings in SETTINGS.items():
        found = {name: [score(name, settings, seed) for seed in seeds] for name in PROBLEMS}
        known = {name: [value for value in values if value is not None] for name, values in found.items()}
        means = {name: summarise(values)["mean"] if values else None for name, values in known.items()}
        diverged = sum(value is None for values in found.values() for value in values)
        mean = summarise(value for values in known.values() for value in values)
        rows.append({"setting": title, "diverged": diverged, "mean": mean, "by_problem": means, "scores": found})
        print(title, f"{mean['mean']:.4f}", means, f"{diverged} diverged", flush=True)
    return rows


def main() -> None:
    """Compares the settings and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    options = parser.parse_args()
    pin_threads()
    rows = compare(options.seeds)
    safe = [row for row in rows if not row["diverged"]]
    best = max(safe, key=lambda row: row["mean"]["mean"])["setting"]
    settings = {"seeds": options.seeds, "epochs": EPOCHS, "budget": BUDGET, "batch_size": BATCH}
    write_result("default_optimizer", {**settings, "best": best, "rows": rows})


if __name__ == "__main__":
    main()
