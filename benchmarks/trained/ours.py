"""This package's own contestants: the search from trained weights, and networks that nobody had to think about."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import budgetnet
from benchmarks.trained.ledger import Entry
from benchmarks.trained.study import SELF, Study, Training
from budgetnet.budgets.budget import parse_all
from budgetnet.data.seeds import generator_of
from budgetnet.network.extract import extract
from budgetnet.records.results import Summary
from budgetnet.runs.result import Result
from budgetnet.strategies.importance import measure
from budgetnet.strategies.moves import Moves
from budgetnet.strategies.recipes import RISE, fast
from budgetnet.strategies.start import marginal_costs
from budgetnet.strategies.trained import TrainedRecipe, trained
from budgetnet.strategies.widths import random_widths, uniform_widths
from budgetnet.training.distillation import TEMPERATURE, WEIGHT
from budgetnet.training.tasks import Task


def settings(study: Study, teacher: str, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """What a search follows from, besides the limit and the seed."""
    recipe = asdict(trained(study.protocol.after).changed({"batch_size": study.batch, **(changes or {})}))
    recipe.pop("shared")
    return {"recipe": recipe, "distillation": [WEIGHT, TEMPERATURE] if teacher == SELF else None}


def current(study: Study, entry: Entry) -> bool:
    """Whether an entry is no search, or one with the settings that are the defaults now."""
    return entry["contestant"] != "ours" or settings(study, entry["teacher"]).items() <= entry.items()


def search(
    study: Study, seed: int, budget: str, teacher: str, out: Path, changes: dict[str, Any] | None = None
) -> tuple[Result, dict[str, Any]]:
    """`budgetnet.search` as a user calls it, and what an entry says of it."""
    data, recipe = study.data, trained(study.protocol.after).changed({"batch_size": study.batch, **(changes or {})})
    result: Result = budgetnet.search(
        study.space(study.full(seed)),
        data.train,
        data.validation,
        data.test,
        budgets=[budget],
        recipe=recipe,
        teacher=teacher,
        augmentation=data.augmentation,
        seed=seed,
        threads=1,
        precision=study.protocol.precision,
        out=out,
        quiet=True,
        resume=True,
    )
    return result, told(result.summary, recipe)


def told(summary: Summary, recipe: TrainedRecipe) -> dict[str, Any]:
    """What an entry says of a search."""
    assert summary.before is not None
    assert summary.spent is not None
    finish, raced = summary.phases["finish"], recipe.winner_epochs if recipe.races else 0.0
    whole = sum(summary.spent.values())
    return {
        "validation": summary.validation_score,
        "test": summary.test_score,
        "macs": summary.macs,
        "params": summary.params,
        "share": summary.macs / summary.before.macs,
        "kept": list(summary.architecture),
        "removed": list(summary.before.removed),
        "race_losses": dict(summary.before.race_losses),
        "phases": {name: round(seconds, 1) for name, seconds in summary.phases.items()},
        "spent": {name: round(seconds, 1) for name, seconds in summary.spent.items()},
        "seconds": round(whole, 1),
        "over_finish_alone": round(whole / (finish * recipe.finish_epochs / (recipe.finish_epochs - raced)), 3),
        "certified": all(budget.met for budget in summary.budgets),
    }


def widths(study: Study, seed: int, share: float, draw: int | None) -> nn.Module | None:
    """The trained network with uniform widths, or random ones, within a share of its multiply-adds.

    Each layer keeps its most important channels, as a search would keep them. None if the share is too small.
    """
    net = study.space(study.full(seed))
    measure(net, Task(), study.calibration(seed, trained().importance_examples)).arrange(net)
    budgets = parse_all([f"macs<={100 * share:g}%"], net)
    source = generator_of("widths", seed, draw or 0)
    zeros = torch.zeros(len(net.graph.edges))
    moves = Moves(net.graph, budgets, zeros, marginal_costs(budgets, net.graph).tolist(), source)
    gates = uniform_widths(moves) if draw is None else random_widths(moves)
    return None if gates is None else extract(net, net.graph.architecture(gates))


def from_scratch(study: Study, seed: int, kept: list[str]) -> dict[str, Any]:
    """The network that a search chose, with fresh weights and the epochs of before and after together."""
    net = study.space(study.fresh(seed))
    chosen = set(kept)
    gates = torch.tensor([edge.name in chosen for edge in net.graph.edges])
    whole = Training(study.protocol.before + study.protocol.after, fast().weights.lr, RISE)
    return study.train(extract(net, net.graph.architecture(gates)), seed, whole)
