"""`budgetnet cost`, `spaces`, `costs`: the keys, the tables, and every bad input as one sentence."""

import json
from pathlib import Path

import pytest

from budgetnet.costs import COSTS, macs, params, size, steps
from budgetnet.network.graph import Architecture
from budgetnet.spaces import SPACES, build
from tests.small_runs import refused, run_cli

SPACE = "resnet-fabric:width=2,channels=4"
Capture = pytest.CaptureFixture[str]


def test_json_has_the_keys_and_values(capsys: Capture) -> None:
    arguments = ("cost", SPACE, "--input", "3x16x16", "--classes", "5", "--machines", "1,3", "--allocation", "dfs")
    code, out, err = run_cli(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert set(value) == {
        *("space", "architecture", "accounting", "macs", "params", "size_bytes", "steps", "edges", "live_edges"),
        "uncounted",
    }
    net = build(SPACE, (3, 16, 16), 5)
    full = net.graph.full
    assert value["macs"] == macs(net)(full)
    assert value["params"] == params(net)(full)
    assert value["size_bytes"] == size(net)(full)
    assert value["steps"] == {str(n): steps(net, n, "dfs")(full) for n in (1, 3)}
    assert value["edges"] == value["live_edges"] == len(net.graph.edges)
    assert value["uncounted"] == []
    assert value["accounting"] == "true"


def test_a_row_of_the_paper(capsys: Capture) -> None:
    space = "resnet-fabric:width=3,channels=16"
    arguments = ("--architecture", "resnet-20", "--accounting", "paper", "--allocation", "dfs", "--json")
    value = json.loads(run_cli(capsys, "cost", space, *arguments)[1])
    assert round(value["macs"] / 1e6, 4) == 40.8992
    assert value["params"] == 273_258
    assert value["steps"] == {"1": 22, "2": 20, "4": 20}


def test_an_architecture_from_a_file(capsys: Capture, tmp_path: Path) -> None:
    net = build(SPACE, (3, 16, 16), 10)
    kept = frozenset(edge.name for edge in net.graph.edges if "spine.block" in edge.name)
    (tmp_path / "a.json").write_text(Architecture(net.graph, kept).to_json())
    out = run_cli(capsys, "cost", SPACE, "--input", "3x16x16", "--architecture", tmp_path / "a.json", "--json")[1]
    assert json.loads(out)["live_edges"] == len(kept) == 6


def test_the_table_is_aligned_and_human(capsys: Capture) -> None:
    code, out, _ = run_cli(capsys, "cost", "resnet-fabric:width=3,channels=16", "--architecture", "resnet-20")
    assert code == 0
    rows = [line for line in out.splitlines() if line.startswith(("multiply-adds", "parameters", "size"))]
    assert len(rows) == 3
    assert len({len(row.rstrip()) for row in rows}) == 1
    assert "273,258" in out
    assert "273.3k" in out


@pytest.mark.parametrize("command", ["spaces", "costs"])
def test_listings_name_everything(capsys: Capture, command: str) -> None:
    names = SPACES if command == "spaces" else COSTS
    table = run_cli(capsys, command)[1]
    listed = json.loads(run_cli(capsys, command, "--json")[1])
    assert set(listed) == set(names)
    assert all(name in table for name in names)
    assert all("parameters" in row for row in listed.values())
    if command == "costs":
        assert listed["size"]["unit"] == "B"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["flat-fabric"], "flat-fabric"),
        (["no_such_module:build"], "no_such_module"),
        (["tests.small_runs:nothing"], "nothing"),
        (["tests.small_runs:vectors:count=3"], "SuperNetwork"),
        (["resnet-fabric:depth=3"], "depth"),
        (["resnet-fabric:width=three"], "three"),
        (["resnet-fabric:width"], "width"),
        (["resnet-fabric:width=-1"], "-1"),
        (["resnet-fabric:width=0"], "0"),
        (["resnet-fabric:channels=0"], "0"),
        (["resnet-fabric:groups=-2"], "-2"),
        (["neural-fabric:width=-3"], "-3"),
        (["neural-fabric:task=poetry"], "poetry"),
        (["neural-fabric", "--input", "3x8x8"], "8"),
        (["resnet-fabric:groups=6", "--input", "3x8x8"], "8"),
        ([SPACE, "--input", "wide"], "wide"),
        ([SPACE, "--input", "3x0x32"], "3x0x32"),
        ([SPACE, "--input", "32"], "32"),
        ([SPACE, "--classes", "0"], "0"),
        ([SPACE, "--classes", "-5"], "-5"),
        ([SPACE, "--classes", "many"], "many"),
        ([SPACE, "--machines", "0"], "0"),
        ([SPACE, "--machines", "-2"], "-2"),
        ([SPACE, "--machines", "1,two"], "two"),
        ([SPACE, "--machines", ""], "machines"),
        ([SPACE, "--allocation", "best"], "best"),
        ([SPACE, "--accounting", "creative"], "creative"),
        ([SPACE, "--architecture", "resnet-7"], "resnet-7"),
        ([SPACE, "--architecture", "missing.json"], "missing.json"),
        ([SPACE, "--colour"], "--colour"),
        ([], "SPACE"),
    ],
)
def test_bad_input_is_one_sentence(capsys: Capture, arguments: list[str], said: str) -> None:
    assert said in refused(capsys, "cost", *arguments)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b'{"kept": 3}',
        b'{"kept": ["a"]}',
        b'{"kept": [3]}',
        b"\xff\xfe",
        b'{"edges": {}}',
    ],
)
def test_a_malformed_architecture_file_is_one_sentence(capsys: Capture, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    assert "bad.json" in refused(capsys, "cost", SPACE, "--architecture", tmp_path / "bad.json")


def test_an_architecture_of_another_space_or_without_a_path_is_one_sentence(capsys: Capture, tmp_path: Path) -> None:
    other = build("resnet-fabric:width=3,channels=4", (3, 16, 16), 10)
    path = tmp_path / "other.json"
    path.write_text(other.graph.full.to_json())
    assert "other.json" in refused(capsys, "cost", SPACE, "--architecture", path)
    net = build(SPACE, (3, 16, 16), 10)
    path.write_text(Architecture(net.graph, frozenset()).to_json())
    assert "does not connect" in refused(capsys, "cost", SPACE, "--architecture", path)


def test_an_unknown_command_is_one_sentence_and_help_is_help(capsys: Capture) -> None:
    assert "costt" in refused(capsys, "costt")
    code, out, err = run_cli(capsys, "--help")
    assert (code, err) == (0, "")
    assert "budgetnet search" in out
    assert run_cli(capsys, "cost", "--help")[0] == 0
    assert "0.1.0" in run_cli(capsys, "--version")[1]
