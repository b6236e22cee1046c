"""What the quality benchmarks compute from their runs: opponents, curves, differences, shapes."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import _opponents, _paper_tables
from benchmarks._common import command
from benchmarks._ledger import Network
from benchmarks._opponents import (
    PROTOCOLS,
    RESNET,
    Opponents,
    Protocol,
    interpolated,
    mean_points,
    random_architectures,
)
from benchmarks._tables import PAGES, SUMMARY, replaced, summary, table
from benchmarks.costs_shape import finest_share, parallel, scale_counts
from benchmarks.curve import compare
from benchmarks.quality import Comparison, difference, judged
from benchmarks.ranking import spearman
from budgetnet.costs import macs
from budgetnet.network.graph import Architecture
from budgetnet.spaces import build


def test_the_command_of_a_result_does_not_say_where_things_lie() -> None:
    said = command("quality", ["--data-root", "/home/me/data", "--parts", "hand,random", "--out", "x y"])
    assert said == "python -m benchmarks.quality --data-root DATA --parts hand,random --out FOLDER"


@pytest.mark.parametrize(("name", "share"), [("resnet", 0.3), ("resnet", 1.0), ("neural", 0.1), ("fashion", 0.6)])
def test_random_opponents_are_connected_distinct_and_cost_what_they_should(name: str, share: float) -> None:
    protocol = PROTOCOLS[name]
    net, maximum = protocol.build(), share * protocol.whole
    cost = macs(net)
    assert protocol.whole == cost(net.architecture("resnet-20" if name != "neural" else "full"))
    assert protocol.budget(share) == f"macs<={round(maximum)}"
    found = random_architectures(net, maximum, 4, seed=1)
    assert found == random_architectures(net, maximum, 4, seed=1)
    assert len(set(found)) == 4
    for architecture in found:
        assert architecture.connected
        assert 0.9 * maximum <= cost(architecture) <= maximum


def test_an_opponent_is_known_by_what_its_training_follows_from() -> None:
    network = Network("a", "folder/a.json", 0, ("one", "two"))
    key = network.key("space", "data", 16)
    assert replace(network, name="b", architecture="elsewhere/b.json").key("space", "data", 16.0) == key
    others = [replace(network, seed=1), replace(network, kept=("one",)), Network("a", "space@full", 0)]
    keys = [other.key("space", "data", 16) for other in others]
    keys += [network.key("space", "data", 8), network.key("space", "other", 16), network.key("other", "data", 16)]
    assert len({key, *keys}) == 7


def test_opponents_are_trained_once_and_kept_beside_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_opponents, "RESULTS", tmp_path / "results")
    space = "resnet-fabric:width=2,channels=2"
    protocol = Protocol("tiny", space, "embedded:size=8,limit=256", 1, 80_000, (), (1, 8, 8))
    opponents = Opponents(protocol, tmp_path / "sweeps", str(tmp_path))
    trained = opponents.random(0.5, 2)
    found = random_architectures(protocol.build(), 40_000, 2, seed=500)
    assert [row["seed"] for row in trained] == [0, 1]
    assert [set(row["kept"]) for row in trained] == [{edge.name for edge in architecture} for architecture in found]
    assert all(36_000 <= row["macs"] <= 40_000 for row in trained)
    assert all(len(row["losses"]) == 1 and 0 < row["test"] < 1 for row in trained)

    shutil.rmtree(tmp_path / "sweeps")
    monkeypatch.setattr(Opponents, "sweep", lambda *_, **__: pytest.fail("trained again"))
    assert opponents.random(0.5, 2) == trained
    assert opponents.random(0.5, 1) == trained[:1]


def test_curves_are_linear_between_their_points_and_flat_outside() -> None:
    points = [(3.0, 0.7), (1.0, 0.5), (2.0, 0.65)]
    for x in np.linspace(0, 4, 17).tolist():
        assert interpolated(points, x) == pytest.approx(np.interp(x, [1, 2, 3], [0.5, 0.65, 0.7]))


def row(macs: int, test: float, **more: Any) -> dict[str, Any]:
    return {"run": f"r{macs}", "macs": macs, "value": macs, "validation": test, "test": test, "seconds": 1.0, **more}


def test_a_curve_is_the_mean_over_seeds() -> None:
    rows = [row(10, 0.5, space="a"), row(20, 0.8, space="b"), row(10, 0.6, space="a")]
    assert mean_points(rows, "space") == [(10, pytest.approx(0.55)), (20, 0.8)]


def test_what_the_front_offers_is_compared_at_each_budget() -> None:
    searches = [row(20, 0.71, front=True), row(14, 0.7, front=True), row(18, 0.1, front=False)]
    resnets = [row(10, 0.5, space="a"), row(20, 0.72, space="b")]
    found = compare(searches, resnets, {1.0: [row(20, 0.6), row(18, 0.64)]}, [15, 19.5, 20])
    assert [offer["run"] for offer in found["budgets"]] == ["r14", "r14", "r20"]
    assert [offer["hand_made"] for offer in found["budgets"]] == pytest.approx([0.61, 0.709, 0.72])
    assert [offer["chance"] for offer in found["budgets"]] == pytest.approx([0.62] * 3)
    assert [offer["above_both"] for offer in found["budgets"]] == [True, False, False]
    assert not found["passed"]


def test_differences_have_the_errors_of_their_kind() -> None:
    ours, theirs = [0.70, 0.72, 0.77], [0.69, 0.70, 0.72]
    paired = difference(ours, theirs, paired=True)
    gaps = 100 * (np.array(ours) - np.array(theirs))
    assert paired["points"] == pytest.approx(gaps.mean())
    assert paired["standard_error"] == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    fewer = difference(ours, theirs[:2], paired=True)
    assert fewer["points"] == pytest.approx(gaps[:2].mean()), "pairs are of the first seeds"
    assert fewer["n"] == 2
    free = difference(ours, theirs[:2], paired=False)
    error = np.sqrt(np.var(ours, ddof=1) / 3 + np.var(theirs[:2], ddof=1) / 2)
    assert free["standard_error"] == pytest.approx(100 * error)
    assert free["lower_bound"] == pytest.approx(free["points"] - 1.645 * free["standard_error"])


def searched(macs: int, test: float, wall: float = 1.4) -> dict[str, Any]:
    """A row of a search under a budget of 100."""
    return row(macs, test, used=macs / 100, phases={"search": 1.0, "finish": 2.0}, wall=wall)


def test_a_floor_needs_the_mean_and_for_chance_the_bound_too() -> None:
    search = [searched(95, 0.75), searched(99, 0.70)]
    chance = [row(95, 0.70), row(95, 0.7)]
    hand = [row(90, 0.6, space="a"), row(100, 0.8, space="b")]
    found = judged(search, {"hand": hand, "random": chance, "timed": [row(95, 0.75), row(95, 0.71)]})
    assert found["hand"]["search_minus_this"]["points"] == pytest.approx((75 - 70 + 70 - 78) / 2)
    assert found["used"]["mean"] == pytest.approx(0.97)
    assert found["seconds"]["mean"] == 3.0
    assert found["random"]["search_minus_this"]["points"] == pytest.approx(2.5)
    assert not found["random"]["floor_holds"], "two seeds that differ by five points prove nothing"
    assert not found["timed"]["floor_holds"]
    assert judged(search[:1] * 2, {"random": chance})["random"]["floor_holds"]


def test_the_time_of_a_search_is_compared_with_the_whole_training_of_what_it_found(tmp_path: Path) -> None:
    """The winner's three epochs of the race are a part of the sixteen."""
    comparison = Comparison(Opponents(RESNET, tmp_path, ""), 0.3)
    phases = {"warm-up": 1.0, "search": 4.0, "choose": 0.5, "race": 24.5, "finish": 39.0}
    found = comparison.searched(row(776_851, 0.7, seed=3), phases)
    assert found["wall"] == pytest.approx(69 / (39 * 16 / 13))
    assert (found["seed"], found["used"]) == (3, 1.0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_have_the_tables_of_the_result_files(page: Path) -> None:
    for make in PAGES[page]:
        made = make()
        assert len(made.splitlines()) > 2
        assert made in page.read_text(encoding="utf-8"), f"{page}: run python -m benchmarks._tables --write"


def test_the_page_of_the_papers_tables_is_made_from_the_result_files() -> None:
    assert _paper_tables.page() == _paper_tables.PAGE.read_text(encoding="utf-8"), "python -m benchmarks._paper_tables"


def test_the_table_says_what_misses_its_floor_and_what_was_not_measured() -> None:
    search = [searched(97, 0.70, 1.6), searched(97, 0.72, 1.8)]
    parts = {"random": [row(95, 0.69), row(95, 0.69)], "timed": [row(95, 0.75), row(95, 0.71)]}
    found = {**judged(search, parts), "share": 0.55, "epochs": 16.0}
    found["wall_over_training"]["bar"] = 1.5
    told = ("ResNet fabric, 55 %", "16", "71.0 % ± 1.4 (2)", "+2.0 ± 1.0 (2)", "**−2.0 ± 3.0 (2)**", "–", "97.0 %")
    assert summary("resnet", found) == (*told, "**1.70**")


def test_a_table_takes_the_place_of_the_one_before() -> None:
    before = table(SUMMARY, [("a",) * len(SUMMARY)])
    text = "above\n\n| other | table |\n\n" + before + "\n\nbelow\n"
    made = before.splitlines()[0] + "\n| a new | row |"
    assert replaced(text, made) == "above\n\n| other | table |\n\n" + made + "\n\nbelow\n"


def test_shapes_are_counted_on_live_edges() -> None:
    net = build("neural-fabric:width=3,scales=3,filters=4", (3, 8, 8), 10)
    path = ["c0s0-c0s1", "c0s1-c1s2", "c1s2-c2s2", "c0s0-c1s0"]
    architecture = Architecture(net.graph, frozenset(path))
    assert finest_share(architecture) == pytest.approx(100 / 3), "the edge to c1s0 leads nowhere"
    assert [count.partition("/")[0] for count in scale_counts(architecture)] == ["0", "1", "2"]
    everything = [count.partition("/")[2] for count in scale_counts(net.graph.full)]
    assert sum(map(int, everything)) == len(net.graph.edges)


def test_a_chain_has_little_to_do_at_once() -> None:
    net = build("resnet-fabric:width=3,channels=4", (3, 16, 16), 10)
    chain, full = parallel(net, net.architecture("resnet-20")), parallel(net, net.graph.full)
    assert (chain["live_units"], chain["critical_path"]) == (22, 20)
    assert full["units_per_step"] > 2 > chain["units_per_step"]


def test_rank_correlation_is_spearmans() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 25, 80]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    gaps = np.array([1, 3, 2, 5, 4]) - np.array([2, 1, 3, 5, 4])
    assert spearman([0.1, 0.3, 0.2, 0.9, 0.8], [7, 2, 8, 11, 10]) == pytest.approx(1 - 6 * (gaps**2).sum() / (5 * 24))
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])
