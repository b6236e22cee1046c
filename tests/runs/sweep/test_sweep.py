"""Plans, model selection and tables, with an engine that trains nothing."""

import csv
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from budgetnet.errors import UserError
from budgetnet.records.folder import RunFolder
from budgetnet.records.records import Record
from budgetnet.runs.config import Config
from budgetnet.runs.sweep import Ending, Order, Plan, adopt, make_plan, run_sweep
from budgetnet.runs.sweep.display import Display, Follower
from budgetnet.runs.sweep.engine import Asked
from budgetnet.runs.sweep.plan import MOST_RUNS
from budgetnet.runs.sweep.table import selected
from tests.summaries import make_budget, make_summary


def plan_of(**settings: Any) -> Plan:
    return make_plan(settings, "here")


def test_a_plan_is_the_grid_in_order_with_readable_names() -> None:
    plan = plan_of(budgets=["macs<=40%", "macs<=60% & params<=1M"], recipes=["fast", "paper"], seeds=[0, 1])
    assert list(plan)[:3] == ["macs-40pct_fast_seed-0", "macs-40pct_fast_seed-1", "macs-40pct_paper_seed-0"]
    assert len(plan) == 8
    both = plan["macs-60pct-and-params-1M_paper_seed-1"]
    assert both == Config(budgets=("macs<=60%", "params<=1M"), recipe="paper", seed=1)


def test_penalties_are_a_list_or_spaced_in_their_logarithm() -> None:
    values = [config.penalty for config in plan_of(budgets="macs<=40%", penalties="0.1:10:5").values()]
    ratios = [b / a for a, b in itertools.pairwise(values)]  # type: ignore[operator]
    assert (values[0], values[-1]) == (0.1, 10)
    assert ratios == pytest.approx([10**0.5] * 4, rel=1e-3)
    assert next(iter(plan_of(budgets="macs<=40%", penalties=["2", 3]))) == "macs-40pct_fast_lambda-2_seed-0"


def test_fixed_architectures_are_of_this_space_or_another_and_measured_on_every_cost() -> None:
    settings = {"space": "resnet-fabric:width=3", "budgets": ["macs<=4M", "macs<=5M & steps(4)<=20"]}
    texts = ["resnet-20", "found/a.json", "neural-fabric:width=2", "resnet-fabric:width=5@resnet-32"]
    plan = plan_of(**settings, architectures=texts, seeds=[7])
    fixed = {name: config for name, config in plan.items() if config.architecture}
    assert [(c.space, c.architecture) for c in fixed.values()] == [
        ("resnet-fabric:width=3", "resnet-20"),
        ("resnet-fabric:width=3", "found/a.json"),
        ("neural-fabric:width=2", "full"),
        ("resnet-fabric:width=5", "resnet-32"),
    ]
    assert list(fixed)[:2] == ["resnet-20_fast_seed-7", "a_fast_seed-7"]
    assert {c.budgets for c in fixed.values()} == {("macs<=100%", "steps(4)<=100%")}


def test_tables_of_runs_start_from_the_other_settings_and_a_run_is_there_once() -> None:
    tables = [
        {"name": "short", "budgets": ["macs<=40%"], "epochs": 1},
        {"budgets": ["macs<=50%"], "seeds": 3, "batch-size": 32},
    ]
    plan = plan_of(epochs=2, architectures=["full"], runs=tables)
    assert list(plan) == [
        "short_macs-40pct_fast_seed-0",
        "short_full_fast_seed-0",
        "macs-50pct_fast_seed-3",
        "full_fast_seed-3",
    ]
    assert [config.epochs for config in plan.values()] == [1, 1, 2, 2]
    assert plan["macs-50pct_fast_seed-3"].batch_size == 32
    assert len(plan_of(budgets=["macs<=4%", "macs<=4%"], seeds=[1, 1])) == 1
    assert list(plan_of(budgets=["macs<=4%", "macs <= 4%"])) == ["macs-4pct_fast_seed-0", "macs-4pct_fast_seed-0-2"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "no budgets"),
        ({"budgets": ["macs<=4%"], "colour": 1}, "'colour' is not a setting"),
        ({"budgets": ["macs<=4%"], "seed": 1}, "'seed' is not a setting"),
        ({"budgets": ["macs<=4%"], "seeds": ["a"]}, "seed is a text, not a whole number"),
        ({"budgets": ["macs<=4%"], "penalties": "0.1:10"}, "0.1:10"),
        ({"budgets": ["macs<=4%"], "penalties": "0:10:3"}, "0:10:3"),
        ({"budgets": ["macs<=4%"], "penalties": ["much"]}, "'much'"),
        ({"budgets": ["macs<=4%"], "penalties": "1:2:²"}, "1:2:²"),
        ({"budgets": ["macs<=4%"], "penalties": "0.1:10:999999999"}, "2 to 1000 values"),
        ({"budgets": ["macs<=4%"], "penalties": "1e-300:1e300:3"}, "must rise"),
        ({"budgets": ["macs<=4%"], "penalties": "1:inf:3"}, "must rise"),
        ({"budgets": ["macs<=4%"], "penalties": "nan:1:3"}, "must rise"),
        ({"budgets": ["macs<=4%"], "penalties": ["inf"]}, "penalty is inf"),
        ({"budgets": ["macs<=4%"], "penalties": [10**400]}, "is not a number"),
        ({"budgets": ["macs<=4%"], "seeds": list(range(MOST_RUNS + 1))}, "more than 10000 runs"),
        ({"budgets": ["macs<=4%"], "penalties": [-1]}, "-1"),
        ({"budgets": [3]}, "budgets cannot hold 3"),
        ({"architectures": [3]}, "architectures cannot hold 3"),
        ({"budgets": ["macs<=4%"], "runs": 3}, "[[runs]]"),
        ({"runs": [{"budgets": ["macs<=4%"], "size": 1}]}, "'size'"),
    ],
)
def test_bad_settings_are_refused_with_their_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        plan_of(**settings)
    assert said in str(error.value)


class Written:
    """An engine of one's own: takes the results from a list instead of training."""

    slots = 2

    def __init__(self, results: dict[str, tuple[float, float]]) -> None:
        self.results = results
        self.tested: list[str] = []

    def carry_out(self, orders: Sequence[Order], should_stop: Asked) -> Iterator[Ending]:
        for order in orders:
            for path, config in order.work:
                if order.kind == "test":
                    self._test(Path(path))
                elif Path(path).name not in self.results:
                    yield Ending(order.name, "failed", "by design")
                    break
                else:
                    self._train(Path(path), config)
            else:
                yield Ending(order.name, "finished")

    def _train(self, path: Path, config: dict[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        value, score = self.results[path.name]
        limit = make_budget(config["budgets"][0].split("<=")[0], value, maximum=math.ceil(value))
        RunFolder(path).write_summary(make_summary(budgets=(limit,), validation_score=score))

    def _test(self, path: Path) -> None:
        self.tested.append(path.name)
        summary = RunFolder(path).summary()
        assert summary.test_score is None
        RunFolder(path).write_summary(summary.with_test(0.5))


PLAN = plan_of(
    budgets=["macs<=1", "macs<=2", "params<=3"], recipes=["fast", "paper"], seeds=[0, 1], architectures="full"
)
RESULTS = {name: (float(10 + (7 * i) % 5), ((3 * i) % 11) / 11) for i, name in enumerate(PLAN) if i != 2}


def expected_front(results: dict[str, tuple[float, float]]) -> set[str]:
    """By definition: no other run of the same method costs no more and scores no less."""

    def method(name: str) -> tuple[str, str]:
        return PLAN[name].budgets[0].split("<=")[0], PLAN[name].recipe

    names = [name for name in results if PLAN[name].architecture is None]

    def beaten(name: str) -> bool:
        cost, score = results[name]
        others = [results[o] for o in names if o != name and method(o) == method(name)]
        return any(c <= cost and s >= score and (c, s) != (cost, score) for c, s in others)

    return {name for name in names if not beaten(name)}


def test_the_front_of_each_method_is_tested_and_nothing_else_but_baselines(tmp_path: Path) -> None:
    engine, told = Written(RESULTS), []
    swept = run_sweep(PLAN, tmp_path / "s", engine, tell=told.append)
    baselines = {name for name, config in PLAN.items() if config.architecture}
    chosen = expected_front(RESULTS)
    assert 0 < len(chosen) < len(RESULTS) - len(baselines)
    assert set(engine.tested) == chosen | baselines
    assert {row["run"] for row in swept.table if row["front"]} == chosen
    assert {row["run"] for row in swept.table if row["test"] is not None} == chosen | baselines
    assert [(ending.name, ending.message) for ending in swept.unwell] == [(list(PLAN)[2], "by design")]
    assert len(told) == len(PLAN) + 2


def test_runs_with_other_data_or_metrics_are_on_fronts_of_their_own(tmp_path: Path) -> None:
    plan = plan_of(budgets=["macs<=1", "macs<=2", "macs<=3", "macs<=4"])
    table = [
        {"run": name, "state": "finished", "cost": "macs", "value": value, "validation": score}
        | {"metric": metric, "higher_is_better": metric != "error"}
        for name, (value, score, metric) in zip(
            plan,
            [(1.0, 0.5, "accuracy"), (2.0, 0.4, "accuracy"), (2.0, 0.4, "error"), (1.0, 0.5, "error")],
            strict=True,
        )
    ]
    names = list(plan)
    assert selected(plan, table) == {names[0], names[2], names[3]}, "a lower error is better"
    other = {**plan, names[1]: replace(plan[names[1]], data="cifar10")}
    assert selected(other, table) == set(names), "what is alone on its data is on its front"
    table[0]["validation"] = None
    assert selected(plan, table) == set(names[1:]), "a run without a score is on none"


def test_a_run_that_ends_later_can_take_a_place_on_the_front(tmp_path: Path) -> None:
    """The table is that of the runs alone, however they came about; nothing that is finished runs again."""
    late = list(PLAN)[2]
    results = {**RESULTS, late: (1.0, 0.99)}
    run_sweep(PLAN, tmp_path / "twice", Written(RESULTS))
    again = Written({late: results[late]})
    twice = run_sweep(PLAN, tmp_path / "twice", again)
    once = run_sweep(PLAN, tmp_path / "once", Written(results))
    assert twice.table == once.table
    assert twice.unwell == []
    assert (tmp_path / "twice" / "table.json").read_bytes() == (tmp_path / "once" / "table.json").read_bytes()
    assert late in again.tested
    assert {row["run"] for row in twice.table if row["front"]} == expected_front(results) != expected_front(RESULTS)


def test_the_table_is_also_for_spreadsheets(tmp_path: Path) -> None:
    swept = run_sweep(PLAN, tmp_path / "s", Written(RESULTS))
    with (tmp_path / "s" / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["run"] for line in lines] == list(PLAN)
    for line, row in zip(lines, swept.table, strict=True):
        assert all(line[name] == ("" if row[name] is None else str(row[name])) for name in line)


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "s"
    run_sweep(PLAN, out, Written(RESULTS))
    run_sweep({name: Config(**{**vars(c), "data_root": "x"}) for name, c in PLAN.items()}, out, Written({}))
    for other in (dict(list(PLAN.items())[1:]), {**PLAN, next(iter(PLAN)): Config(seed=9)}):
        with pytest.raises(UserError, match="holds another sweep"):
            run_sweep(other, out, Written({}))
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "thesis.tex").touch()
    with pytest.raises(UserError, match="something else"):
        run_sweep(PLAN, tmp_path / "else", Written({}))


def test_every_run_can_be_tested_where_nothing_is_chosen(tmp_path: Path) -> None:
    swept = run_sweep(PLAN, tmp_path / "s", Written(RESULTS), test_all=True)
    assert {row["run"] for row in swept.table if row["test"] is not None} == set(RESULTS)
    assert {row["run"] for row in swept.table if row["front"]} == expected_front(RESULTS)
    again = run_sweep(PLAN, tmp_path / "s", Written(RESULTS))
    assert again.table == run_sweep(PLAN, tmp_path / "front", Written(RESULTS)).table


def test_a_sweep_may_grow(tmp_path: Path) -> None:
    first = dict(list(PLAN.items())[:3])
    run_sweep(first, tmp_path / "grown", Written(RESULTS))
    added = Written({name: result for name, result in RESULTS.items() if name not in first})
    grown = run_sweep(PLAN, tmp_path / "grown", added)
    assert grown.table == run_sweep(PLAN, tmp_path / "at-once", Written(RESULTS)).table
    with pytest.raises(UserError, match="holds another sweep"):
        run_sweep(first, tmp_path / "grown", Written({}))


def test_fixed_networks_of_another_sweep_are_copied_and_only_the_same_ones(tmp_path: Path) -> None:
    run_sweep(PLAN, tmp_path / "a", Written(RESULTS))
    fixed = [name for name, config in PLAN.items() if config.architecture]
    changed = {**PLAN, fixed[0]: replace(PLAN[fixed[0]], epochs=3)}
    (tmp_path / "c").mkdir()
    assert adopt(changed, tmp_path / "b", [tmp_path / "none", tmp_path / "c", tmp_path / "a"]) == fixed[1:]
    left = {name: (1.0, 0.5) for name in PLAN if name not in fixed[1:]}
    swept = run_sweep(changed, tmp_path / "b", Written(left))
    assert swept.unwell == [], "nothing that was copied is run"
    before = {row["run"]: row for row in run_sweep(PLAN, tmp_path / "a", Written({})).table}
    assert [row for row in swept.table if row["run"] in fixed[1:]] == [before[name] for name in fixed[1:]]
    assert adopt(changed, tmp_path / "b", [tmp_path / "a"]) == [], "what is there stays"
    with pytest.raises(UserError, match="holds another sweep"):
        adopt(PLAN, tmp_path / "b", [])


def test_records_are_followed_line_by_line_and_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    follower = Follower(path)
    follower.follow()
    assert not follower.active()
    lines = [
        Record("phase", "finish", 0, 0, 0.0, {"steps": 8}),
        Record("step", "finish", 1, 2, 0.0),
        Record("epoch", "finish", 1, 4, 0.0, {"validation_accuracy": 0.25}),
    ]
    text = "".join(record.to_json() + "\n" for record in lines)
    path.write_text(text[:-5])
    follower.follow()
    assert (follower.share, follower.validation) == (0.25, None)
    path.write_text(text)
    follower.follow()
    assert (follower.share, follower.validation) == (0.5, 0.25)
    path.write_text(text[: text.index("\n", text.index("\n") + 1) + 1])
    follower.follow()
    assert follower.share == 0.25
    assert follower.active()


@pytest.mark.parametrize("finished", [True, False])
def test_an_ending_is_told_with_the_score_of_all_validation_data(
    finished: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "one"
    run.mkdir()
    look = Record("epoch", "finish", 1, 4, 0.0, {"validation_accuracy": 0.25})
    (run / "records.jsonl").write_text(look.to_json() + "\n")
    if finished:
        RunFolder(run).write_summary(make_summary(validation_score=0.5))
    with Display(tmp_path, ["one", "two"], finished=0) as display:
        display.tell(Ending("one", "finished" if finished else "interrupted"))
    told = "1/2 one: finished, validation 50.0%" if finished else "0/2 one: interrupted, validation 25.0%"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", '{"budgets": 3}', '{"runs": 3}'])
def test_a_damaged_run_is_a_row_and_a_damaged_plan_a_sentence(tmp_path: Path, content: str) -> None:
    plan = plan_of(budgets=["macs<=1", "macs<=2"])
    out, (bad, good) = tmp_path / "s", plan
    run_sweep(plan, out, Written({bad: (1.0, 0.5), good: (2.0, 0.6)}))
    (out / bad / "summary.json").write_text(content)
    swept = run_sweep(plan, out, Written({}))
    assert [(row["run"], row["state"]) for row in swept.table] == [(bad, "failed"), (good, "finished")]
    assert "summary.json" in swept.table[0]["message"]
    (out / "sweep.json").write_text(content)
    with pytest.raises(UserError, match=r"sweep\.json"):
        run_sweep(plan, out, Written({}))
