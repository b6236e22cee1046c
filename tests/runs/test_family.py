"""Several budgets from one importance pass: each network certified in a folder of its own, finished ones kept."""

from pathlib import Path

import pytest
import torch

import budgetnet
from budgetnet.errors import UserError
from budgetnet.runs.family import SHARED, curve, member_folders
from budgetnet.strategies import trained
from budgetnet.strategies.importance import Importance, measure
from budgetnet.training.tasks import Task
from tests.small_runs import mlp, vectors
from tests.trained_runs import quick, table_net

BUDGETS = ["macs<=60%", "macs<=35%"]


def test_a_family_shares_one_importance_pass_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []

    def counted(*arguments: object) -> Importance:
        passes.append(1)
        return measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trained, "measure", counted)

    def run() -> list[budgetnet.Result]:
        data = (vectors(160), vectors(64, 1))
        return budgetnet.search_family(
            table_net(), *data, budgets=BUDGETS, out=tmp_path, recipe=quick(racers=1), quiet=True
        )

    results = run()
    assert len(passes) == 1
    assert [result.met for result in results] == [True, True]
    assert results[0].summary.macs > results[1].summary.macs
    for result, text in zip(results, BUDGETS, strict=True):
        assert result.summary.budgets[0].text == text
        assert (member_folders(BUDGETS, tmp_path)[text] / "certificate.json").exists()
    assert (tmp_path / "report.html").exists()
    before = [(path / "summary.json").stat().st_mtime_ns for path in member_folders(BUDGETS, tmp_path).values()]
    again = run()
    assert len(passes) == 1
    assert before == [(p / "summary.json").stat().st_mtime_ns for p in member_folders(BUDGETS, tmp_path).values()]
    rows = curve([result.summary for result in again])
    assert [row[0] for row in rows] == BUDGETS
    assert all(row[4] == "yes" for row in rows)
    assert [row[2] for row in rows] == [f"{result.summary.budgets[0].share:.1%}" for result in results]
    with pytest.raises(UserError, match="another network"):
        Importance.from_bytes((tmp_path / SHARED).read_bytes(), mlp(), "the file")


def test_importance_is_read_back_as_it_was_written() -> None:
    net = table_net()
    found = measure(net, Task(), [vectors(32)])
    again = Importance.from_bytes(found.to_bytes(), net, "the file")
    assert torch.equal(again.edges, found.edges)
    assert again.orders.keys() == found.orders.keys()
    assert all(torch.equal(again.orders[place], order) for place, order in found.orders.items())
    with pytest.raises(UserError, match="does not hold"):
        Importance.from_bytes(b"nothing", net, "the file")


@pytest.mark.parametrize(("budgets", "message"), [([], "no budget"), (["macs<=5%", "macs<=5%"], "given twice")])
def test_budgets_that_make_no_family_are_refused(budgets: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        member_folders(budgets, tmp_path)
