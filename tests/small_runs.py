"""Super networks, data and loops so small that a whole search takes a second, and costs to name on a command line."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from budgetnet.budgets.budget import BudgetLike, parse_all
from budgetnet.budgets.feasibility import check, profile
from budgetnet.cli import main
from budgetnet.data.feeds import SplitFeed, make_feed
from budgetnet.naming import own_names
from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.records.records import TIME_FIELDS
from budgetnet.strategies.recipes import TIME_SHARES, Recipe, Strategy, fast
from budgetnet.strategies.runner import Runner
from budgetnet.training.tasks import Task
from budgetnet.training.trainer import Trainer

INPUTS, CLASSES = 6, 3


def mlp(layers: int = 3, width: int = 6, seed: int = 0, **options: Any) -> SuperNetwork:
    """A linear edge with batch norm between every pair of layers (3 layers: 6 edges), of different sizes."""
    torch.manual_seed(seed)
    widths = [width + i for i in range(layers + 1)]
    pairs = list(itertools.combinations(range(layers + 1), 2))
    graph = Graph(Edge(f"{a}-{b}", f"layer{a}", f"layer{b}") for a, b in pairs)
    modules = {f"{a}-{b}": nn.Sequential(nn.Linear(widths[a], widths[b]), nn.BatchNorm1d(widths[b])) for a, b in pairs}
    stem, head = nn.Linear(INPUTS, widths[0]), nn.Linear(widths[-1], CLASSES)
    return SuperNetwork(
        graph, modules, input_shape=(INPUTS,), stem=stem, head=head, activation=nn.ReLU(), name="mlp", **options
    )


def build_mlp(layers: int = 3) -> SuperNetwork:
    """A space for `tests.small_runs:build_mlp` on a command line."""
    return mlp(layers)


def vectors(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Clusters that a linear layer can tell apart."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(CLASSES, INPUTS, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return centres[labels] + torch.randn(count, INPUTS, generator=generator), labels


def short(**changes: Any) -> Recipe:
    """The default recipe, over in a moment."""
    finish = changes.get("finish_epochs", 2)
    races = {"race_epochs": 0.2 * finish, "final_epochs": 0.3 * finish}
    epochs = {"warmup_epochs": 1, "search_epochs": 2, "finish_epochs": finish, **races}
    sizes = {"batch_size": 32, "groups": 4, "choose_examples": 64}
    return fast().changed({**epochs, **sizes, **changes})


def make_runner(
    budgets: Sequence[BudgetLike] = ("macs<=60%",),
    net: SuperNetwork | None = None,
    recipe: Strategy | None = None,
    seed: int = 0,
    **options: Any,
) -> Runner:
    """The runner of a search on 160 vectors, checked as a run does it."""
    net = net or mlp()
    recipe = recipe or short()
    parsed = parse_all(
        budgets,
        net,
        example=torch.zeros(2, *net.input_shape),
        own=own_names(*(text for text in budgets if isinstance(text, str))),
    )
    fallback = check(profile(parsed, seed), seed)
    train = make_feed(vectors(160), recipe.batch_size, seed)
    validation = SplitFeed(make_feed(vectors(64, 1), 64, seed).split, 64, seed)  # type: ignore[attr-defined]
    start = recipe.start(parsed, net.graph, fallback)
    trainer = Trainer(Task(), train, validation, recipe.make_optimizer, time_shares=TIME_SHARES, **options)
    return Runner.of_search(recipe, net, parsed, fallback, start, trainer, seed)


def timeless(path: Path) -> list[dict[str, Any]]:
    """The records of a run without the fields that may differ from one run to the next."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in TIME_FIELDS} for line in lines]


def same_run(one: Path, other: Path) -> None:
    """Asserts that two run folders hold the same result, to the bit, and the same records."""
    for name in ("weights.safetensors", "architecture.json", "archive.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    assert timeless(one / "records.jsonl") == timeless(other / "records.jsonl")


def forked(work: Callable[[], None], limit: int = 60) -> int:
    """The id of a child process that does the work, on one thread, and ends within a time limit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of torch that sleep do not mind
        child = os.fork()
    if child:
        return child
    try:
        signal.alarm(limit)
        torch.set_num_threads(1)
        _take_own_lock()
        work()
    finally:
        os._exit(0)


def _take_own_lock() -> None:
    """Progress bars of torch.fx share a lock with forked processes: a child killed with it would stop its parent."""
    for kind in torch.hub.tqdm.__mro__:
        if "_lock" in vars(kind):
            kind._lock = threading.RLock()


TINY = (
    *("--space", "resnet-fabric:width=1,channels=2", "--data", "embedded:limit=256,size=8"),
    *("--epochs", "1", "--batch-size", "64", "--quiet"),
)
"""Options of a search on 256 images of 8×8 in 4 steps an epoch."""


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """The command line in this process: exit code, standard output, standard error."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command line says to bad input, which must be exit code 2 and one sentence with a remedy, no more."""
    code, out, err = run_cli(capsys, *arguments)
    assert code == 2, (out, err)
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    sentence = err.removeprefix("error: ").rstrip("\n")
    assert ". " not in sentence.replace("e.g. ", ""), "one sentence"
    return sentence


def weight_of(architecture: Architecture) -> float:
    """A cost by hand: edges of even index weigh 1, of odd index 2."""
    return float(sum(1 + architecture.graph.index[edge.name] % 2 for edge in architecture))


def weigh(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost without a unit."""
    return weight_of


def joules(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost with a unit."""
    return weight_of


joules.unit = "J"  # type: ignore[attr-defined]


def noisy(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's random cost, 10 % around `weight_of`."""
    return lambda architecture: weight_of(architecture) * float(1 + 0.1 * torch.randn(()))


noisy.stochastic = True  # type: ignore[attr-defined]


def raising(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost with a mistake."""

    def cost(architecture: Architecture) -> float:
        raise ZeroDivisionError("by hand")

    return cost


def not_a_number(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost that gives NaN."""
    return lambda architecture: math.nan


def negative(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost that gives less than nothing."""
    return lambda architecture: -1.0


def late(net: SuperNetwork) -> Callable[[Architecture], float]:
    """A user's cost that fails for one architecture in many."""
    calls = itertools.count()
    return lambda architecture: math.nan if next(calls) > 90 else weight_of(architecture)


late.stochastic = True  # type: ignore[attr-defined]


def not_a_cost(net: SuperNetwork) -> float:
    """A user's cost that forgot to return a function."""
    return 3.0
