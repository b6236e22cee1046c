"""Scores on shared weights, recomputed from the network itself, and the best of those within the budgets."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from budgetnet.network.extract import extract
from budgetnet.training.metrics import cross_entropy
from budgetnet.training.tasks import Task
from tests.small_runs import make_runner, short


def test_an_entry_is_the_loss_of_the_network_with_statistics_of_its_own() -> None:
    runner = make_runner(recipe=short(choose_examples=64))
    gates = runner.state.fallback.live().gates()
    before = {name: value.clone() for name, value in runner.state.net.state_dict().items()}
    entry = runner.state.archive.score(gates, "search", 3)
    assert runner.state.archive.entries == [entry]
    assert (entry.phase, entry.epoch) == ("search", 3)
    assert all(torch.equal(value, before[name]) for name, value in runner.state.net.state_dict().items())

    model = extract(runner.state.net, runner.state.net.graph.architecture(gates)).train()
    batches = [inputs for inputs, _ in runner.trainer.train.training(0)][:3]
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm1d)):
        norm.reset_running_stats()
        norm.momentum = None
    with torch.no_grad():
        for inputs in batches:
            model(inputs)
        (inputs, labels), *more = runner.trainer.validation.evaluation()
        outputs = model.eval()(inputs)
    assert not more
    assert entry.loss == pytest.approx(float(F.cross_entropy(outputs, labels)), rel=1e-5)
    assert entry.metric == pytest.approx(float((outputs.argmax(1) == labels).float().mean()))
    assert entry.costs == {"macs": runner.state.budgets[0].meter(runner.state.net.graph.architecture(gates))}


def test_an_entry_says_whether_it_is_within_the_budgets() -> None:
    runner = make_runner(["macs<=60%"])
    graph = runner.state.net.graph
    rows = [
        graph.full.gates(),
        *(torch.tensor([a, b, not a, b, a, True]) for a in (0, 1) for b in (0, 1)),
    ]
    live = [gates for gates in graph.live(torch.stack([row.bool() for row in rows])) if gates.any()]
    entries = [runner.state.archive.score(gates, "choose", 0) for gates in live]
    (budget,) = runner.state.budgets
    assert [entry.feasible for entry in entries] == [entry.costs["macs"] <= budget.maximum for entry in entries]
    assert not entries[0].feasible
    assert sum(entry.feasible for entry in entries) >= 2


def test_a_loss_that_is_no_number_is_infinite() -> None:
    losses = iter([math.nan, 1.0, math.nan, 1.0])
    runner = make_runner(["macs<=100%"])
    runner.state.archive.task = Task(lambda outputs, targets: cross_entropy(outputs, targets) * next(losses))
    rows = [runner.state.net.graph.full.gates(), runner.state.fallback.live().gates()] * 2
    entries = [runner.state.archive.score(gates, "choose", 0) for gates in rows]
    assert [math.isfinite(entry.loss) for entry in entries] == [False, True, False, True]
