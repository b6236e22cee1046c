"""What super networks, results and certificates show in a notebook."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import budgetnet
from budgetnet import SuperNetwork, UserError
from budgetnet.budgets.certificate import BudgetEntry, Certificate
from tests.naming.test_html import read
from tests.small_runs import mlp, short, vectors
from tests.summaries import make_summary

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[SuperNetwork, budgetnet.Result]:
    net = mlp()
    out = tmp_path_factory.mktemp("drawing") / "run"
    given = {"budgets": "macs<=60%", "recipe": short(), "quiet": True}
    return net, budgetnet.search(net, vectors(160), vectors(64, 1), out=out, **given)


def edges(picture: str) -> dict[str, bool]:
    """The edges of a picture by name, and whether they are kept."""
    groups = re.findall(r'<g class="edge ([^"]*)"[^>]* data-name="([^"]*)"', picture)
    return {name: "dropped" not in classes for classes, name in groups}


def test_a_super_network_is_a_table_with_shares_of_the_whole() -> None:
    net = mlp()
    head, *rows = read(net._repr_html_()).rows[1:]
    assert head[:3] == ["place", "kind", "units"]
    assert [row[0] for row in rows] == [edge.name for edge in net.graph.edges]
    weights = {e.name: m[0].weight.numel() for e, m in zip(net.graph.edges, net.edge_modules, strict=True)}  # type: ignore[index]
    paths = [{"0-3"}, {"0-1", "1-3"}, {"0-2", "2-3"}, {"0-1", "1-2", "2-3"}]
    for row in rows:
        live = set().union(*(path for path in paths if row[0] not in path))
        gone = sum(count for name, count in weights.items() if name not in live)
        assert row[3] == f"{100 * gone / sum(weights.values()):.1f} %", "what goes with a branch"


def test_a_picture_keeps_what_the_architecture_keeps() -> None:
    net = mlp()
    kept = budgetnet.Architecture(net.graph, frozenset(("0-3", "0-1", "1-3")))
    assert all(edges(budgetnet.draw(net).svg).values())
    assert {name for name, strong in edges(budgetnet.draw(net, kept).svg).items() if strong} == kept.kept


def test_a_picture_says_its_cost_and_its_title(tmp_path: Path) -> None:
    drawing = budgetnet.draw(mlp(), cost="steps(2)", title=EVIL)
    assert "data-tick=" in drawing.svg
    assert "&lt;script&gt;" in drawing.svg
    assert "<script" not in drawing._repr_html_()
    assert drawing.save(tmp_path / "net.svg").read_text(encoding="utf-8") == drawing.svg
    with pytest.raises(UserError, match="exists"):
        drawing.save(tmp_path / "net.svg")


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match="not a super network"):
        budgetnet.draw(vectors)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="the super network is"):
        budgetnet.draw(mlp(), mlp(2).graph.full)


def test_a_result_shows_summary_certificate_and_what_was_kept(found: tuple[SuperNetwork, budgetnet.Result]) -> None:
    _, result = found
    shown = result._repr_html_()
    assert {name for name, strong in edges(shown).items() if strong} == result.architecture.live().kept
    rows = read(shown.partition("<svg")[0]).rows
    assert dict(result.summary.table()).items() <= {row[0]: row[1] for row in rows if len(row) == 2}.items()
    assert ["holds", "macs<=60%"] in [row[:2] for row in rows]


def test_a_loaded_result_shows_the_same_without_the_code_of_its_network(
    found: tuple[SuperNetwork, budgetnet.Result],
) -> None:
    net, result = found
    run = result.summary.run
    assert budgetnet.load(run, net)._repr_html_() == result._repr_html_()
    assert edges(budgetnet.load(run)._repr_html_()) == edges(result._repr_html_())
    drawing = budgetnet.load(run).drawing
    assert drawing is not None
    with pytest.raises(UserError, match="macs, params"):
        replace(drawing, cost="latency")._repr_html_()


def test_a_run_of_an_older_version_is_a_table(found: tuple[SuperNetwork, budgetnet.Result], tmp_path: Path) -> None:
    copied = shutil.copytree(found[1].summary.run, tmp_path / "run")
    (copied / "graph.json").unlink()
    result = budgetnet.load(copied)
    assert result.drawing is None
    assert "<svg" not in result._repr_html_()
    assert "<table>" in result._repr_html_()


def test_a_graph_that_is_damaged_does_not_keep_a_run_from_being_opened(
    found: tuple[SuperNetwork, budgetnet.Result], tmp_path: Path
) -> None:
    copied = shutil.copytree(found[1].summary.run, tmp_path / "run")
    (copied / "graph.json").write_text('{"edges": 3}')
    assert budgetnet.load(copied).drawing is None


def test_texts_of_others_are_not_markup(found: tuple[SuperNetwork, budgetnet.Result]) -> None:
    entry = BudgetEntry(
        cost=EVIL, text=EVIL, unit=EVIL, maximum=1, measured=1, upper_bound=None, how={"method": EVIL}, holds=False
    )
    certificate = Certificate(False, (entry,), {"processor": EVIL, "cores": EVIL}, {"torch": EVIL})
    summary = make_summary(run=EVIL, spent={EVIL: 1.0})
    net = mlp()
    net.name = EVIL
    shown = replace(found[1], summary=summary, certificate=certificate, net=net)._repr_html_() + net._repr_html_()
    assert shown.count("&lt;script&gt;") >= 8
    assert "script" not in read(shown).elements


def test_without_the_extra_there_are_tables_and_a_sentence(found: tuple[SuperNetwork, budgetnet.Result]) -> None:
    """In a process that cannot import what draws."""
    code = (
        "import sys; sys.modules['markupsafe'] = None; import budgetnet\n"
        "from tests.small_runs import mlp\n"
        f"result = budgetnet.load({found[1].summary.run!r}, mlp())\n"
        "assert '<table>' in result._repr_html_() and '<svg' not in result._repr_html_()\n"
        "try: budgetnet.draw(mlp()).svg\n"
        "except budgetnet.UserError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "budgetnet[report]" in done.stdout
