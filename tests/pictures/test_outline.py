"""The graph of a run as data: what is written is what is read, and a page needs no code for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import budgetnet
from budgetnet.costs import bind
from budgetnet.errors import UserError
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.outline import Outline
from budgetnet.pictures.report import report
from budgetnet.records.folder import read_run
from budgetnet.spaces import build
from tests.small_runs import mlp, run_cli, short, vectors

COSTS = ("macs", "params", "size", "steps(2)", "steps(2,dfs)")


def converted() -> SuperNetwork:
    """A model of a user's with two narrow layers and a branch."""
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3, padding=1), nn.ReLU())
    return budgetnet.from_model(
        nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)), torch.zeros(2, 3, 8, 8)
    )


@pytest.mark.parametrize("net", [converted(), build("resnet-fabric:width=2,channels=4", (3, 16, 16), 4), mlp()])
def test_costs_read_from_a_file_are_those_of_the_network(net: SuperNetwork) -> None:
    outline = Outline.of(net, [bind(name, net) for name in COSTS])
    again = Outline.from_json(json.loads(json.dumps(outline.to_json())), "here")
    assert again.graph == net.graph
    assert again.shapes.nodes == net.shapes.nodes
    gates = torch.rand(50, len(net.graph.edges), generator=torch.Generator().manual_seed(0)) < 0.7
    for name in COSTS:
        assert torch.equal(again.meters[name].evaluate(gates), bind(name, net).evaluate(gates)), name
        assert again.meters[name].unit == bind(name, net).unit


def broken(value: dict[str, Any], where: tuple[Any, ...], new: Any) -> dict[str, Any]:
    """The value with one place changed."""
    copy = json.loads(json.dumps(value))
    place = copy
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = new
    changed: dict[str, Any] = copy
    return changed


@pytest.mark.parametrize(
    ("where", "new"),
    [
        (("shapes",), []),
        (("edges",), [{"name": str(i), "source": str(i), "target": str(i + 1)} for i in range(9000)]),
        (
            ("edges",),
            [{"name": f"{i}", "source": f"n{i}", "target": f"n{i + 1}"} for i in range(700)]
            + [{"name": f"s{i}", "source": f"n{i}", "target": "n700"} for i in range(700)],
        ),
        (("edges",), []),
        (("edges", 0, "source"), 3),
        (("additive", "macs", "edges"), [1.0]),
        (("additive", "macs", "nodes"), [float("inf")]),
        (("additive", "macs", "bundles", 0, "axes", 0), [999]),
        (("additive", "macs", "bundles", 0, "terms", 0, "counts", 0, "per_block"), [[7, 1]]),
        (("additive", "macs", "bundles", 0, "widths", 0, "bounds"), [0, 2**60]),
        (("scheduled", "steps(2)", "units"), [1]),
        (("scheduled", "steps(2)", "allocation"), "random"),
        (("chains",), [["nobody"]]),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(where: tuple[Any, ...], new: Any) -> None:
    net = converted()
    value = Outline.of(net, [bind(name, net) for name in COSTS]).to_json()
    with pytest.raises(UserError):
        Outline.from_json(broken(value, where, new), "graph.json")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search from Python on a super network that nobody else can build."""
    out = tmp_path_factory.mktemp("own") / "run"
    budgetnet.search(
        mlp(), vectors(160), vectors(64, 1), budgets="macs<=60%", recipe=short(), classes="abc", out=out, quiet=True
    )
    return out


def test_a_run_from_python_draws_itself(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = report([run])
    assert page.count('class="edge plain') == len(mlp().graph.edges)
    assert "Where does the cost go?" in page
    assert "code of your own" not in page
    code, _, err = run_cli(capsys, "draw", run, "-o", run.parent / "drawn.svg", "--cost", "params")
    assert code == 0, err
    assert (run.parent / "drawn.svg").read_text().count("<title>0-") > 2
    code, _, err = run_cli(capsys, "draw", run, "-o", run.parent / "other.svg", "--cost", "size")
    assert code == 2
    assert "does not know the cost size, only macs, params" in err


def test_a_damaged_graph_is_said(run: Path, tmp_path: Path) -> None:
    for file in run.glob("*.json*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "graph.json").write_text('{"name": 3}')
    words = " ".join(re.sub("<[^>]*>", " ", report([tmp_path])).split())
    assert "graph.json: name is a whole number, not a text" in words
    assert read_run(tmp_path).summary is not None
