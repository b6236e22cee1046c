"""The paper's tables: what is published, what it costs when counted here, and which runs would make it."""

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import profile
from budgetnet.costs.latency.timing import torch_threads
from budgetnet.data.feeds import make_feed
from budgetnet.errors import UserError
from budgetnet.reproduce import REPRODUCTIONS, SCALES, estimates, find, plan_of
from budgetnet.reproduce.catalogue import baseline
from budgetnet.reproduce.estimates import _pace, _work, estimated
from budgetnet.reproduce.published import PublishedRow, PublishedTable
from budgetnet.reproduce.settings import FULL, REDUCED, Setting, cost_of, setting
from budgetnet.reproduce.table import as_markdown, compare
from budgetnet.runs.job import Job, check_job, estimated_seconds
from budgetnet.spaces import build
from budgetnet.training.tasks import Task

PAPER_TABLES = [(entry, table) for entry in REPRODUCTIONS.values() for table in entry.tables]


def plan(name: str, scale: str) -> Any:
    return plan_of(find(name).methods(scale), name)


def test_every_table_of_the_paper_is_there_with_every_row() -> None:
    """Rows counted by hand in the paper, by kind of model."""
    counted = {
        "table 1": {"ResNet": 5, "LCCL": 4, "MSDNet": 10, "B-ResNet": 7, "CNF": 4, "B-CNF": 5},
        "table 2": {"ResNet": 5, "MSDNet": 7, "B-ResNet": 6},
        "table 3": {"ResNet": 5, "B-ResNet": 7, "CNF": 4, "B-CNF": 6},
        "table 4": {"CNF": 1, "B-CNF": 2},
        "CIFAR-10 with n=1": {"ResNet": 5, "B-ResNet": 5, "CNF": 4, "B-CNF": 7},
        "CIFAR-10 with n=2": {"ResNet": 5, "B-ResNet": 5, "CNF": 4, "B-CNF": 6},
        "CIFAR-10 with n=4": {"ResNet": 5, "B-ResNet": 5, "CNF": 4, "B-CNF": 4},
        "CIFAR-100 with n=1": {"ResNet": 5, "B-ResNet": 6},
        "CIFAR-100 with n=2": {"ResNet": 5, "B-ResNet": 5},
    }
    assert len(PAPER_TABLES) == len(counted)
    for name, kinds in counted.items():
        (table,) = (table for _, table in PAPER_TABLES if name in table.where)
        found = Counter(
            row.model if row.model[:2] == "B-" else row.model.split("-")[0].split()[0] for row in table.rows
        )
        assert found == kinds, name


@pytest.mark.parametrize(
    ("table", "model", "cost", "accuracy"),
    [
        ("table 1", "B-ResNet", 39.25, 92.39),
        ("table 1", "B-CNF", 103.0, 93.14),
        ("table 1", "LCCL (ResNet-20)", 26.0, 91.68),
        ("table 1", "MSDNet", 25.0, 90.0),
        ("table 2", "B-ResNet", 115.09, 71.46),
        ("table 3", "B-ResNet", 0.48, 93.42),
        ("table 4", "B-CNF", 21.37, 95.43),
        ("CIFAR-10 with n=4", "B-CNF", 25.0, 94.72),
        ("CIFAR-100 with n=1", "B-ResNet", 320.0, 74.35),
    ],
)
def test_numbers_that_the_text_or_a_reader_would_look_up(table: str, model: str, cost: float, accuracy: float) -> None:
    (found,) = (entry for _, entry in PAPER_TABLES if table in entry.where)
    assert (cost, accuracy) in [(row.cost, row.accuracy) for row in found.rows if row.model == model]


def test_recomputed_costs_are_the_published_ones_but_for_two_slips() -> None:
    """A printed number is met to half of its last digit; whole numbers are printed with two zeros in some tables."""
    slips = []
    for (entry, table), row in ((pair, row) for pair in PAPER_TABLES for row in pair[1].rows):
        paper = entry.setting("full")
        if paper.network(row.model) is None:
            assert row.model.split()[0] in ("B-ResNet", "B-CNF", "MSDNet", "LCCL")
            continue
        digits = row.printed.removesuffix(".00").partition(".")[2]
        difference = abs(paper.cost(row.model, table.cost) / table.unit - row.cost)
        if difference > 0.5 * 10 ** -len(digits) + 1e-9:
            slips.append((entry.name, row.model, row.printed, bool(row.note)))
    assert slips == [
        ("cifar10-macs", "ResNet-110", "253.70", True),
        ("cifar100-steps", "ResNet-32", "34.00", True),
    ]
    assert sum(bool(row.note) for _, table in PAPER_TABLES for row in table.rows) == 2


def test_the_plan_of_the_full_scale_is_complete() -> None:
    """λ has five values; C is each ResNet's cost, or that of CNF W = 2, 4, 8 and of the cheapest published B-CNF."""
    penalties = [0.1, 0.3162, 1.0, 3.162, 10.0]
    resnets, fabrics = 5 * len(penalties), 4 * len(penalties)
    counts = {
        "cifar10-macs": (9, resnets + fabrics),
        "cifar100-macs": (5, resnets),
        "cifar10-params": (9, resnets + fabrics),
        "cifar10-steps": (9, 3 * (resnets + fabrics)),
        "cifar100-steps": (5, 2 * resnets),
        "part-labels": (1, 2 * len(penalties)),
        "dynamics": (1, 1),
    }
    for name, entry in REPRODUCTIONS.items():
        runs, models = plan(name, "full")
        fixed = [config for config in runs.values() if config.architecture is not None]
        searches = [config for config in runs.values() if config.architecture is None]
        assert (len(fixed), len(searches)) == counts[name], name
        assert list(models) == list(runs)
        assert {config.recipe for config in runs.values()} == {"paper"}
        assert {config.epochs for config in runs.values()} == {None}
        assert {config.data for config in runs.values()} == {entry.setting("full").data}
        if name != "dynamics":
            assert sorted({config.penalty for config in searches}) == penalties
    assert set(counts) == set(REPRODUCTIONS)


def test_the_budgets_of_the_full_scale_are_the_costs_of_the_papers_networks() -> None:
    def limits(name: str, kind: str) -> list[str]:
        runs, models = plan(name, "full")
        return list(dict.fromkeys(runs[run].budgets[0] for run in runs if models[run] == kind))

    macs = [f"macs(accounting=paper)<={n}" for n in (40899200, 69268096, 97636992, 126005888, 253665920)]
    assert limits("cifar10-macs", "B-ResNet") == macs
    assert limits("cifar10-params", "B-CNF") == [f"params<={n}" for n in (1190000, 3848970, 8579850, 18041610)]
    steps = [(1, (22, 34, 46, 58, 112)), (2, (20, 32, 44, 56, 110))]
    assert limits("cifar100-steps", "B-ResNet") == [f"steps({n},dfs)<={c}" for n, cs in steps for c in cs]
    spaces = [config.space for config in plan("cifar10-macs", "full")[0].values() if config.penalty == 1.0]
    assert spaces[:5] == [f"resnet-fabric:width={w},channels=16" for w in (3, 5, 7, 9, 18)]
    assert set(spaces[5:]) == {"neural-fabric:width=8,scales=6,filters=128"}


def test_one_column_is_out_of_reach_for_eight() -> None:
    """Why the plan has no budget of CNF W=1: the cheapest path through eight columns costs more."""
    paper = FULL["cifar10"]
    net = build(paper.fabric(8), paper.shape, paper.classes)
    for cost in ("macs(accounting=paper)", "params", "steps(4,dfs)"):
        (row,) = profile(parse_all([f"{cost}<=100%"], net), 0)
        assert row.smallest > paper.cost("CNF W=1", cost)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_reduced_budgets_can_be_met_and_runs_are_named_once(name: str) -> None:
    entry = find(name)
    runs, models = plan(name, "reduced")
    small = entry.setting("reduced")
    assert {config.data for config in runs.values()} == {small.data}
    assert "size=" in small.data
    searched = {(config.space, config.budgets) for config in runs.values() if config.architecture is None}
    assert searched
    for space, budgets in searched:
        net = build(space, small.shape, small.classes)
        assert all(row.satisfiable for row in profile(parse_all(budgets, net), 0)), (space, budgets)
    assert len(set(runs.values())) == len(runs) == len(models)


def test_settings_know_the_papers_networks() -> None:
    assert FULL["cifar10"].network("ResNet-56") == ("resnet-fabric:width=9,channels=16", "resnet-56")
    assert FULL["part-labels"].network("CNF W=8") == (
        "neural-fabric:width=8,scales=9,filters=64,task=segmentation",
        "full",
    )
    assert FULL["cifar10"].network("LCCL (ResNet-20)") is None
    assert REDUCED["cifar10"].cost("ResNet-20", "macs") == 2_589_504
    with pytest.raises(UserError, match="MSDNet"):
        FULL["cifar10"].cost("MSDNet", "macs")
    with pytest.raises(UserError, match="tiny"):
        setting("cifar10", "tiny")
    with pytest.raises(UserError, match="cifar10-macs"):
        find("table-9")


TINY = Setting("embedded:limit=256,size=8", (1, 8, 8), 10, 256, "fast", 1, channels=2, scales=3, filters=2)
TABLE = PublishedTable(
    "table 0",
    "params",
    "# params (thousands)",
    1e3,
    (PublishedRow("ResNet-8", "1.21", 50.0), PublishedRow("LCCL", "9", 1.0)),
)


def row(run: str, value: float, validation: float, test: float | None, **more: Any) -> dict[str, Any]:
    return {
        "run": run,
        "state": "finished",
        "architecture": None,
        "cost": "params",
        "value": value,
        "costs": {"params": value},
        "validation": validation,
        "test": test,
        **more,
    }


def test_selection_looks_across_widths_at_validation_alone() -> None:
    """One front for B-ResNet, though each width of the fabric is a space of its own to the sweep."""
    rows = [
        row("a", 900, 0.50, 0.10),
        row("b", 1000, 0.40, 0.99),
        row("c", 2000, 0.60, 0.20),
        row("d", 100, 0.90, None, state="interrupted"),
        row("e", 50, 0.95, 0.5, cost="macs"),
        row("fixed", 1211, 0.3, 0.4, architecture="resnet-8"),
    ]
    models = dict.fromkeys("abcde", "B-ResNet") | {"fixed": "ResNet-8"}
    found = compare(TABLE, TINY, rows, models, {"a": 0.0312, "fixed": None})
    assert [(line.model, line.ours.run if line.ours else None) for line in found.lines] == [
        ("ResNet-8", "fixed"),
        ("LCCL", None),
        ("B-ResNet", "c"),
        ("B-ResNet", "a"),
    ]
    text = as_markdown(found, {"a": Path("pictures/a.svg")})
    recomputed = cost_of("resnet-fabric:width=1,channels=2", "resnet-8", "params", (1, 8, 8), 10) / 1e3
    assert f"| ResNet-8 | 1.21 | {recomputed:.3f} | 50.00 |  | 1.211 | 30.00 | 40.00 |  | fixed |" in text
    assert "| LCCL | 9 |  | 1.00 |  |  |  |  |  |  |" in text
    assert "| B-ResNet |  |  |  |  | 0.900 | 50.00 | 10.00 | 0.031 | [a](pictures/a.svg) |" in text


BASELINES = [(data, model) for data in ("cifar10", "cifar100") for model in ("ResNet-20", "ResNet-110")]
BASELINES += [("cifar10", f"ResNet-{depth}") for depth in (32, 44, 56)]
BASELINES += [("cifar10", f"CNF W={width}") for width in (1, 2, 4, 8)]


@pytest.mark.parametrize(("data", "model"), BASELINES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_baseline_takes_real_training_steps(scale: str, data: str, model: str) -> None:
    """By the loop of `budgetnet train`, on noise, with all epochs of its recipe ahead of it."""
    chosen = setting(data, scale)
    runs, _ = plan_of([baseline(chosen, model, ("params",))], "here")
    (config,) = runs.values()
    recipe = config.make_recipe(chosen.task)
    assert (recipe.warmup_epochs, recipe.search_epochs) == (0, 0)
    assert recipe.finish_epochs == (300 if scale == "full" else 24)
    net = build(config.space, chosen.shape, chosen.classes)
    examples = torch.randn(2, *chosen.shape), torch.randint(chosen.classes, (2,))
    feed = make_feed(examples, 2, 0)
    architecture = net.architecture(str(config.architecture))
    job = Job(net, Task(), feed, feed, None, [], recipe, config, {}, architecture)
    assert estimated_seconds(job, check_job(job)) > 0


def test_without_runs_ours_is_empty() -> None:
    lines = compare(TABLE, TINY, [], {}, {}).lines
    assert [line.ours for line in lines] == [None, None]
    assert lines[0].recomputed is not None


def test_estimates_grow_with_what_is_computed() -> None:
    entry = find("cifar10-params")
    small_ones = [
        method for method in entry.methods("reduced") if method.model in ("ResNet-8", "ResNet-14", "ResNet-20")
    ]
    runs, models = plan_of(small_ones, "here")
    small = entry.setting("reduced")
    work = {name: _work(config, small) for name, config in runs.items()}
    assert all(a < b for a, b in itertools.pairwise(work.values()))
    resnet_20 = next(name for name in runs if models[name] == "ResNet-20")
    assert work[resnet_20] == 2_589_504 * 10_000 * 24
    one = {resnet_20: runs[resnet_20]}
    seconds = estimated(one, small)
    assert 1 < seconds < 1800, "what a short probe spends on files and certificates does not count"
    assert estimated({resnet_20: replace(runs[resnet_20], epochs=48)}, small) == pytest.approx(2 * seconds)
    assert SCALES == ("reduced", "full")


def test_an_estimate_is_timed_on_one_thread_and_leaves_the_threads_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = find("dynamics")
    runs, _ = plan_of(entry.methods("reduced"), "here")
    seen: list[int] = []
    measured = estimates.estimated_seconds

    def watched(*arguments: Any) -> float:
        seen.append(torch.get_num_threads())
        return measured(*arguments)

    monkeypatch.setattr(estimates, "estimated_seconds", watched)
    _pace.cache_clear()
    with torch_threads(2):
        estimated(runs, entry.setting("reduced"))
        assert torch.get_num_threads() == 2
    assert seen == [1]


def test_a_reduced_search_is_the_papers_recipe_with_a_rate_for_its_length() -> None:
    """175,781 steps of 64 draws at a rate of 0.001; ours has 156.25 steps an epoch of 8 draws, in 20 of 24 epochs.

    Four times that again, so that Γ decides early. Part Labels: 30 of 40 epochs, 46.875 steps each.
    """
    for name in REPRODUCTIONS:
        runs, _ = plan(name, "reduced")
        searches = [config for config in runs.values() if config.architecture is None]
        assert all(config.groups == 8 and str(config.recipe).startswith("paper:policy_lr=") for config in searches)
    assert REDUCED["cifar10"].recipe == f"paper:policy_lr={4e-3 * 175_781.25 * 64 / (20 * 156.25 * 8):.3g}"
    assert REDUCED["part-labels"].recipe == f"paper:policy_lr={4e-3 * 175_781.25 * 64 / (30 * 46.875 * 8):.3g}"
