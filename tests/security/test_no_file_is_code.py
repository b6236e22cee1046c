"""No file is code: names in files load nothing, torch programs stay shut, and the current folder is not on the path."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx, nn

import budgetnet
from budgetnet.cli import main
from budgetnet.errors import UserError
from budgetnet.export import FORMATS, export_network
from budgetnet.export.files import CHECKSUM, UNSEALED, sha256
from budgetnet.export.rebuilding import empty, rebuild
from budgetnet.export.structure import describe
from budgetnet.naming import load_object, own_names
from budgetnet.network.extract import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.job import prepare
from budgetnet.runs.stored import open_stored, write_structure
from tests import stored_runs

PAYLOADS = ("trap:spring", "trap:spring:path=sprung", "os:system:command=touch sprung", "trap:spring(sprung)")
TRAP = "open('sprung', 'w')\ndef spring(*arguments, **options):\n    open('sprung', 'w')\n"


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module that leaves a mark when it is imported or called; the mark must never be there."""
    (tmp_path / "trap.py").write_text(TRAP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "trap", raising=False)
    return tmp_path / "sprung"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a built-in space, with every file that a run has, and its exports."""
    folder = stored_runs.make_run(tmp_path_factory.mktemp("made") / "run")
    stored = open_stored(folder)
    (folder / "structure.json").write_bytes(write_structure(stored.network, stored.net.graph))
    for kind, chosen in FORMATS.items():
        file = folder / f"model{chosen.suffix}"
        export_network(stored.network, file, kind, stored.description, torch.rand(2, *stored_runs.SHAPE))
    stored_runs.write_images(folder, 1)
    summary = json.loads((folder / "summary.json").read_text())
    kept = [edge.name for edge in stored.architecture]
    summary |= {"run": str(folder), "space": stored_runs.SPACE, "recipe": "fast", "seed": 0, "architecture": kept}
    summary |= {"validation_accuracy": 0.5, "test_accuracy": None, "macs": 1, "params": 1, "seconds": 1.0, "phases": {}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every string in a JSON value, keys of maps left alone."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: str) -> Any:
    """The same value with one string changed."""
    copy = json.loads(json.dumps(value))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return copy


def commands(folder: Path, out: Path) -> list[list[str]]:
    """Every command that reads a run or a model file."""
    run, image = str(folder), str(folder / "0.png")
    return [
        ["certify", run],
        ["export", run, "--format", "safetensors", "-o", str(out / "a.safetensors"), "--force"],
        ["show", run],
        ["runs", str(folder.parent)],
        ["draw", run, "-o", str(out / "a.svg"), "--force"],
        ["search", "--resume", "--out", run, "--quiet"],
        ["search", "--config", str(folder / "settings.toml"), "--out", str(out / "new"), "--dry-run"],
        *(["predict", str(folder / f"model.{kind}"), image] for kind in ("safetensors", "onnx", "pt2")),
        *(["certify", str(folder / f"model.{kind}")] for kind in ("safetensors", "onnx", "pt2")),
    ]


def sealed_safetensors(folder: Path, texts: dict[str, str]) -> None:
    """A model file with these texts and a seal that fits, as anybody can make it."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = {**header["__metadata__"], **texts, CHECKSUM: UNSEALED}
    written = json.dumps(header).encode()
    written += b" " * (-len(written) % 8)
    blank = len(written).to_bytes(8, "little") + written + data[8 + length :]
    (folder / "model.safetensors").write_bytes(blank.replace(UNSEALED.encode(), sha256(blank).encode()))


def test_all_commands_over_all_files_whose_every_string_is_a_payload(
    made: Path, trap: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every string field of every file of the folder, all at once and each on its own where a name is looked up."""
    folder = tmp_path / "runs" / "run"
    folder.mkdir(parents=True)
    originals = {path.name: path.read_bytes() for path in made.iterdir()}
    texts = {name: json.loads(data) for name, data in originals.items() if name.endswith(".json")}
    cases: list[dict[str, Any]] = []
    alone: list[dict[str, Any]] = []
    for payload in PAYLOADS:
        everything = dict(texts)
        for name, value in texts.items():
            for path in strings(value):
                everything[name] = replaced(everything[name], path, payload)
        cases.append(everything)
        if payload != PAYLOADS[0]:
            continue
        named = [("config.json", path) for path in strings(texts["config.json"]["config"], ("config",))]
        named += [("certificate.json", path) for path in strings(texts["certificate.json"]["budgets"], ("budgets",))]
        alone += [{**texts, name: replaced(texts[name], path, payload)} for name, path in named]
    for number, case in enumerate(cases + alone):
        for name, data in originals.items():
            (folder / name).write_bytes(data)
        for name, value in case.items():
            (folder / name).write_text(json.dumps(value))
        payload = PAYLOADS[number % len(PAYLOADS)]
        (folder / "settings.toml").write_text(
            f'space = "{payload}"\nbudgets = ["{payload}<=3"]\ncosts = ["{payload}"]\n'
        )
        sealed_safetensors(folder, dict.fromkeys(("space", "task", "normalisation"), payload))
        for arguments in commands(folder, tmp_path)[: None if number < len(cases) else 1]:
            code = main(arguments)
            said = capsys.readouterr().err
            assert code in (0, 1, 2, 3), arguments
            assert "Traceback" not in said
            assert not trap.exists(), (arguments, case)


def test_the_sentence_says_what_to_add_and_adding_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_for_a_test.py").write_text(
        "from budgetnet.spaces import resnet_fabric\n"
        "def space(input_shape=(3, 8, 8), classes=10):\n"
        "    return resnet_fabric(1, 4, classes=classes, input_shape=input_shape)\n"
        "def edges(net):\n    return lambda architecture: len(architecture.live())\n"
    )
    folder = stored_runs.make_run(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config["config"]["space"] = "mine_for_a_test:space"
    (folder / "config.json").write_text(json.dumps(config))
    for arguments in (["certify", str(folder)], ["export", str(folder), "-o", str(tmp_path / "m.onnx")]):
        assert main(arguments) == 2
        assert "--space" in capsys.readouterr().err
        assert main([*arguments, "--space", "mine_for_a_test:space"]) == 0, capsys.readouterr().err
        assert main([*arguments, "--space", "mine_for_a_test:other"]) == 2
        assert "was made with the space mine_for_a_test:space" in capsys.readouterr().err
    certificate = json.loads((folder / "certificate.json").read_text())
    certificate["budgets"][0] |= {"cost": "mine_for_a_test:edges", "maximum": 99, "unit": ""}
    (folder / "certificate.json").write_text(json.dumps(certificate))
    again = ["certify", str(folder), "--space", "mine_for_a_test:space"]
    assert main(again) == 2
    assert "add --cost mine_for_a_test:edges" in capsys.readouterr().err
    assert main([*again, "--cost", "mine_for_a_test:edges"]) == 0


def test_a_configuration_from_a_file_names_no_code(trap: Path) -> None:
    for config in (
        budgetnet.Config(space="trap:spring", data=stored_runs.DATA),
        budgetnet.Config(budgets=("trap:spring<=3",), data=stored_runs.DATA),
        budgetnet.Config(budgets=("spring<=3",), costs=("trap:spring",), data=stored_runs.DATA),
    ):
        with pytest.raises(UserError, match="never because a file does"):
            prepare(config)
    assert not trap.exists()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("pkg.mod:build", {"pkg.mod:build"}),
        (" pkg.mod:build:depth=5", {"pkg.mod:build"}),
        ("pkg.mod:energy(volts=2)<=3J", {"pkg.mod:energy"}),
        ("pkg.mod:build@full", {"pkg.mod:build"}),
        ("resnet-fabric:width=3", set()),
        ("fabric:width=3", set()),
        ("folder:path=os:system", set()),
        ("macs<=3", set()),
        ("", set()),
    ],
)
def test_only_what_the_user_wrote_as_a_name_is_one(text: str, names: set[str]) -> None:
    assert own_names(text) == names


def test_a_name_that_was_not_given_is_refused_before_any_import(trap: Path) -> None:
    with pytest.raises(UserError, match="add --cost trap:spring"):
        load_object("trap:spring", "a cost", [], own=["trap:other"])
    assert not trap.exists()


def test_the_current_folder_is_not_on_the_path(made: Path, tmp_path: Path) -> None:
    """A module that a command imports late would be taken from the folder in which somebody keeps hostile files."""
    (tmp_path / "onnxruntime.py").write_text("open('sprung', 'w')\n")
    command = [sys.executable, "-m", "budgetnet", "predict", str(made / "model.onnx"), str(made / "0.png")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "sprung").exists()


class _Reduced:
    def __reduce__(self) -> Any:
        return (open, ("sprung", "w"))


def test_a_torch_program_is_not_opened(made: Path, trap: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with a pickle in it, and a certificate beside it that fits."""
    file = trap.parent / "evil.pt2"
    torch.save(_Reduced(), file)
    checksums = {"checksums": {"evil.pt2": sha256(file.read_bytes())}}
    (trap.parent / "certificate.json").write_text(json.dumps(checksums))
    image = str(made / "0.png")
    for arguments in (["predict", str(file), image], ["certify", str(file)]):
        assert main(arguments) == 2
        assert "--trust" in capsys.readouterr().err
    assert not trap.exists()


class _OwnLayer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def own_network(layer: nn.Module | None = None) -> SuperNetwork:
    """A super network of a user's, of layers that the built-in spaces do not have."""
    edges = [Edge("a", "in", "mid"), Edge("b", "in", "mid"), Edge("c", "mid", "out")]
    modules = {
        "a": nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU()),
        "b": nn.Linear(6, 8, bias=False),
        "c": nn.Sequential(layer or nn.Dropout(0.5), nn.Linear(8, 3)),
    }
    return SuperNetwork(Graph(edges), modules, input_shape=(6,), activation=nn.Hardswish())


@pytest.fixture
def own_run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    inputs, targets = torch.randn(64, 6), torch.randint(3, (64,))
    out = tmp_path / "own"
    budgetnet.search(
        own_network(), (inputs, targets), (inputs, targets), budgets="macs<=90%", out=out, epochs=0.5, quiet=True
    )
    return out


def test_a_run_made_in_python_opens_without_its_code(own_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded, given = budgetnet.load(own_run), budgetnet.load(own_run, own_network())
    inputs = torch.randn(5, 6)
    assert torch.equal(loaded.model(inputs), given.model(inputs))
    assert loaded.architecture == given.architecture
    assert main(["certify", str(own_run), "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)["budgets"][0]["measured"]
    assert whole == budgetnet.costs.bind("macs", own_network())(given.architecture)
    for kind in ("onnx", "safetensors"):
        assert main(["export", str(own_run), "--format", kind]) == 0, capsys.readouterr().err
    assert main(["certify", str(own_run), "--budget", "steps(2)<=9"]) == 2
    assert "name the space with --space" in capsys.readouterr().err


def test_a_class_of_the_users_is_kept_by_name_and_needs_the_network() -> None:
    net = own_network(_OwnLayer())
    network = extract(net, net.graph.full)
    with pytest.raises(UserError, match=r"_OwnLayer, code of your own.*budgetnet\.load\(run, net\)"):
        rebuild(json.loads(json.dumps(describe(network))), network.state_dict(), "the run")


class _Kept(nn.Module):
    """Functions, methods and whole operations, such as networks of other people's are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, groups=1, bias=False)
        self.norm = nn.GroupNorm(2, 8)
        self.register_buffer("table", torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.silu(self.norm(self.conv(x)))
        flat = y.flatten(2).transpose(1, 2)
        seen = torch.ops.aten.scaled_dot_product_attention.default(flat, flat, flat)
        pooled = torch.cat([seen.mean(1), seen[:, 0]], dim=1)
        return pooled + self.table.repeat(2).to(torch.float32)


def test_functions_methods_operations_and_constants_come_back() -> None:
    torch.manual_seed(0)
    network = fx.symbolic_trace(_Kept())
    again = rebuild(json.loads(json.dumps(describe(network))), network.state_dict(), "x")
    inputs = torch.randn(2, 3, 5, 5)
    assert torch.equal(again(inputs), network.eval()(inputs))


@pytest.mark.parametrize(
    "change",
    [
        lambda n: n["nodes"][1].update(target='m"];__import__("os").system("touch sprung");("'),
        lambda n: n["nodes"][1].update(name="x; import os"),
        lambda n: n["nodes"][0].update(target="x=__import__('os').system('touch sprung')"),
        lambda n: n["nodes"][1].update(op="call_function", target="builtins.eval"),
        lambda n: n["nodes"][1].update(op="call_function", target="torch.load"),
        lambda n: n["nodes"][1].update(op="call_function", target="aten.from_file.default"),
        lambda n: n["nodes"][1].update(op="call_method", target="__class__"),
        lambda n: n["nodes"][1].update(op="get_attr", target="forward.__globals__"),
        lambda n: n["nodes"][1].update(kwargs={"a=__import__('os')": 1}),
        lambda n: n["nodes"][1].update(args={"tuple": [{"dtype": "load"}]}),
        lambda n: n["nodes"].append(dict(n["nodes"][-1])),
        lambda n: n["nodes"].pop(),
        lambda n: n["children"][0].__setitem__(0, "a.b"),
        lambda n: n["children"][0].__setitem__(1, {"kind": "Module", "arguments": {}}),
        lambda n: n["children"][0].__setitem__(1, {"kind": "Linear", "arguments": {"in_features": 1e99}}),
        lambda n: n["children"][0].__setitem__(
            1, {"kind": "Linear", "arguments": {"in_features": 2**62, "out_features": 9}}
        ),
        lambda n: n["children"][0].__setitem__(1, {"kind": "Linear", "arguments": {"device": "cuda"}}),
        lambda n: n.update(tensors=[["__class__", False, [2]]]),
        lambda n: n.update(tensors=[["big", False, [2**40]]]),
        lambda n: n.update(nodes=None),
    ],
)
def test_a_structure_that_is_not_one_is_refused(trap: Path, change: Any) -> None:
    net = own_network()
    structure = json.loads(json.dumps(describe(extract(net, net.graph.full))))
    change(structure["network"])
    with pytest.raises(UserError, match=r"damaged|cannot be built"):
        empty(structure, "the file")
    assert not trap.exists()
