"""The comparison of trained models made to fit: its table, its ledger, its bisection, and a tiny run of its program."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks._resnet import HandResNet
from benchmarks.trained import latency, macs, peers, table
from benchmarks.trained.ledger import Entry, Ledger, key_of
from benchmarks.trained.peer import multiply_adds
from benchmarks.trained.study import Protocol, Study
from budgetnet.costs.counts import count

TINY = Protocol("embedded:size=8,limit=256", 4, 1, 1.0, 1.0)


def entry(contestant: str, seed: int, test: float, **more: Any) -> Entry:
    known = {"part": "macs", "limit": 0.3, "contestant": contestant, "seed": seed, "teacher": "none"}
    return {**known, "validation": test, "test": test, **more}


LEDGER = [
    entry("ours", 0, 0.76, teacher="self", over_finish_alone=1.2, certified=True),
    entry("ours", 1, 0.75, teacher="self", over_finish_alone=1.4, certified=True),
    entry("ours", 0, 0.74),
    entry("magnitude", 0, 0.74, lr=0.1, versions={"torch-pruning": "1"}),
    entry("magnitude", 0, 0.70, lr=0.02),
    entry("magnitude", 1, 0.745, lr=0.1),
    entry("taylor", 0, 0.73, lr=0.1),
    entry("random", 0, 0.70, draw=0),
    entry("random", 0, 0.72, draw=1),
    entry("fastnas", 0, 0.0, refused=True) | {"limit": 0.15},
]


def test_the_table_pairs_seeds_tunes_by_validation_and_takes_the_better_pruner() -> None:
    (half,) = (found for found in table.table(LEDGER, "macs") if found["limit"] == 0.3)
    assert half["rows"]["magnitude"]["test"]["mean"] == pytest.approx(100 * (0.74 + 0.745) / 2)
    assert half["rows"]["random"]["test"]["n"] == 1
    named = {(row["ours"], row["other"]): row for row in half["differences"]}
    ahead = named["ours, taught", "magnitude"]
    assert ahead["points"] == pytest.approx((2.0 + 0.5) / 2)
    assert ahead["standard_error"] == pytest.approx(0.75)
    assert (ahead["n"], ahead["bar"], ahead["met"]) == (2, 1.0, True)
    assert ("ours, taught", "taylor") not in named
    assert named["ours", "random"]["points"] == pytest.approx(3.0)
    assert not named["ours", "magnitude"]["points"]
    assert half["wall"] == {"ratio": 1.3, "bar": 1.25, "met": False}
    assert half["peers"]["magnitude"] == {"versions": {"torch-pruning": "1"}}
    assert any("ours − random: +3.00 points" in line for line in table.lines([half]))


def test_a_run_is_known_by_all_that_it_follows_from_and_made_once(tmp_path: Path) -> None:
    ledger, calls = Ledger(tmp_path / "ledger.json"), []

    def make() -> dict[str, float]:
        calls.append(1)
        return {"test": 0.5}

    for seed in (0, 0, 1):
        assert ledger.run({"seed": seed, "contestant": "x"}, make)["test"] == 0.5
    assert len(calls) == len(ledger.entries()) == 2
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1}) != key_of({"a": 1, "b": 3})


def test_bisection_finds_the_largest_share_within_the_limit_and_counts_misses() -> None:
    grid = [0.9, 0.7, 0.5, 0.3, 0.1]

    def make(share: float) -> nn.Module | None:
        return nn.Linear(1, round(1000 * share)) if share > 0.2 else None

    def clock(model: nn.Module) -> dict[str, Any]:
        return {"time": 0.2 + model.out_features / 1000}

    for limit in (0.4, 0.55, 0.75, 2.0):
        found = latency.bisect(make, clock, limit, grid)
        fitting = [share for share in grid if share > 0.2 and 0.2 + share <= limit]
        assert found.share == max(fitting, default=None)
        assert found.missed == sum(one["time"] > limit for one in found.tries)
        assert len(found.tries) <= 3


def test_a_network_of_other_widths_is_rebuilt_from_its_weights() -> None:
    narrow = HandResNet(4, 1)
    block = narrow.blocks[1]
    block.conv1, block.bn1, block.conv2 = nn.Conv2d(4, 3, 3, 2, 1), nn.BatchNorm2d(3), nn.Conv2d(3, 8, 3, 1, 1)
    rebuilt = peers.reshaped(HandResNet(4, 1), narrow.state_dict())
    rebuilt.load_state_dict(narrow.state_dict())
    x = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(rebuilt.eval()(x), narrow.eval()(x))
    sums = 4 * 64 + 8 * 16 + 16 * 4
    assert multiply_adds(narrow, x) + sums == count(narrow, x[:1]).macs


def test_the_program_runs_once_what_the_ledger_does_not_have(tmp_path: Path) -> None:
    study = Study(TINY, Ledger(tmp_path / "ledger.json"), tmp_path / "runs")
    contestants = ("ours", "uniform", "uniform-taught", "magnitude", "random")
    macs.run(study, [0.5], [0], contestants)
    entries = study.ledger.entries()
    made = sorted((found["contestant"], found.get("teacher", "")) for found in entries.values())
    assert made == [
        ("full", ""),
        ("ours", "self"),
        ("random", "none"),
        ("random", "none"),
        ("uniform", "none"),
        ("uniform", "self"),
    ]
    assert all(found["share"] <= 0.5 for found in entries.values() if found["contestant"] != "full")
    macs.run(study, [0.5], [0], contestants)
    assert study.ledger.entries() == entries
    (found,) = table.table(entries.values(), "macs")
    assert found["certified"] == [True]
