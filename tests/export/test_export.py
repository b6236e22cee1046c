"""Exported files: the same function, in their own runtime, without budgetnet; and how a file can be wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from benchmarks.fuzz import resealed
from budgetnet import data
from budgetnet.errors import UserError
from budgetnet.export import FORMATS, Description, export_network, open_model, predict, save_program, verify
from budgetnet.export.files import CHECKSUM, sha256
from budgetnet.export.folding import fold
from budgetnet.export.onnx_graph import to_onnx
from budgetnet.export.pieces import Pieces
from budgetnet.network.extract import extract
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.runs.stored import open_stored
from tests import stored_runs
from tests.random_graphs import small_space
from tests.small_runs import refused, run_cli
from tests.stored_runs import LABELS, SHAPE, SPACE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    return stored_runs.make_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def files(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The run in every format."""
    folder = tmp_path_factory.mktemp("exported")
    stored = open_stored(run)
    paths = {kind: folder / f"model{chosen.suffix}" for kind, chosen in FORMATS.items()}
    for kind, path in paths.items():
        export_network(stored.network, path, kind, stored.description, images(20))
    return paths


def images(count: int) -> Tensor:
    """Real images, pixels from 0 to 255."""
    return data.load("embedded:size=8").validation.inputs[:count].float()


def source(run: Path, inputs: Tensor) -> Tensor:
    """The logits of the run's network, on inputs scaled as in training."""
    with torch.no_grad():
        return open_stored(run).network(inputs / 127.5 - 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_exported_file_gives_the_logits_of_its_source(run: Path, files: dict[str, Path], kind: str) -> None:
    for inputs in (images(37), torch.rand(1, *SHAPE), torch.rand(5, *SHAPE)):
        torch.testing.assert_close(predict(files[kind], inputs, trust=True), source(run, inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_says_what_it_is(run: Path, files: dict[str, Path], kind: str) -> None:
    found = open_model(files[kind], trust=True).description
    assert (found.space, found.input_shape, found.labels, found.scaled) == (SPACE, SHAPE, LABELS, True)
    assert json.loads(found.architecture) == json.loads((run / "architecture.json").read_text())
    assert found.certificate == json.loads((run / "certificate.json").read_text())


@pytest.mark.parametrize(("name", "changes"), [("resnet-fabric", {"groups": 2}), ("neural-fabric", {"scales": 3})])
def test_networks_put_together_from_shared_pieces_are_right(name: str, changes: dict[str, int]) -> None:
    net = small_space(name, **changes)
    net(torch.randn(16, *net.input_shape))
    net.eval()
    pieces = Pieces()
    gates = torch.rand(12, len(net.graph.edges), generator=torch.Generator().manual_seed(0)) < 0.6
    live = [row for row in net.graph.live(gates) if row.any()]
    assert len(live) > 3
    for row in live:
        network = extract(net, net.graph.architecture(row))
        model = to_onnx(fold(network), net.input_shape, scaled=False, pieces=pieces)
        onnx.checker.check_model(model, full_check=True)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        x = torch.randn(3, *net.input_shape)
        with torch.no_grad():
            expected = net(x, row).numpy()
        np.testing.assert_allclose(session.run(None, {"input": x.numpy()})[0], expected, atol=1e-4, rtol=1e-4)


class Gate(nn.Module):
    """A user's module: not a Sequential, with a parameter of its own and a buffer."""

    def __init__(self, size: int, bias: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(size))
        self.register_buffer("shift", torch.randn(size))
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x * self.scale + self.shift) * x + self.bias


def test_modules_of_a_user_are_told_apart() -> None:
    """Two of a kind share a piece; one whose options cannot be compared has its own."""
    graph = Graph([Edge("a", "x", "y"), Edge("b", "x", "y"), Edge("c", "y", "z"), Edge("d", "y", "z")])
    modules = {"a": Gate(4, 1.0), "b": Gate(4, 2.0), "c": Gate(4, [3.0][0]), "d": Gate(4, torch.tensor(4.0))}
    net = SuperNetwork(graph, modules, input_shape=(4,)).eval()
    network = extract(net, graph.full)
    model = to_onnx(fold(network), (4,), scaled=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = torch.rand(5, 4)
    with torch.no_grad():
        expected = network(x / 127.5 - 1).numpy()
    np.testing.assert_allclose(session.run(None, {"input": x.numpy()})[0], expected, rtol=1e-5)


def test_folding_leaves_no_batch_norm_that_follows_a_convolution_and_changes_nothing(run: Path) -> None:
    network = open_stored(run).network
    folded = fold(network)
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    x = torch.randn(4, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), network(x), atol=1e-5, rtol=1e-5)


def test_a_norm_without_running_statistics_stays() -> None:
    module = nn.ModuleList([nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2, track_running_stats=False))])
    assert isinstance(fold(module)[0][1], nn.BatchNorm2d)


WITHOUT_BUDGETNET = """
import json, sys
sys.modules["budgetnet"] = None
{imports}
images = np.load(sys.argv[2])
{run}
np.save(sys.argv[3], logits)
json.dump(sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "onnx", "onnxscript")), sys.stdout)
"""

ALONE = {
    "onnx": (
        "import numpy as np, onnxruntime as ort",
        "session = ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
        "logits = session.run(None, {'input': images})[0]\n"
        "assert json.loads(session.get_modelmeta().custom_metadata_map['labels'])",
    ),
    "torch": (
        "import numpy as np, torch",
        "module = torch.export.load(sys.argv[1]).module()\nlogits = module(torch.from_numpy(images)).detach().numpy()",
    ),
}


@pytest.mark.parametrize("kind", ALONE)
def test_a_file_runs_without_budgetnet(run: Path, files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    inputs = images(7)
    np.save(tmp_path / "images.npy", inputs.numpy())
    imports, code = ALONE[kind]
    program = WITHOUT_BUDGETNET.format(imports=imports, run=code)
    arguments = [str(files[kind]), str(tmp_path / "images.npy"), str(tmp_path / "logits.npy")]
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    logits = torch.from_numpy(np.load(tmp_path / "logits.npy"))
    torch.testing.assert_close(logits, source(run, inputs), atol=1e-5, rtol=1e-5)
    if kind == "onnx":
        assert json.loads(done.stdout) == [], "ONNX Runtime is enough"


def test_the_onnx_file_passes_the_checker_and_says_its_shapes(files: dict[str, Path]) -> None:
    model = onnx.load(files["onnx"])
    onnx.checker.check_model(model, full_check=True)
    [entry], [result] = model.graph.input, model.graph.output
    shape = [dimension.dim_param or dimension.dim_value for dimension in entry.type.tensor_type.shape.dim]
    assert (entry.name, shape) == ("input", ["batch", *SHAPE])
    assert result.name == "logits"
    assert not any(node.op_type == "BatchNormalization" for node in model.graph.node)
    assert "checksum" not in json.loads({p.key: p.value for p in model.metadata_props}["certificate"])["checksums"]


@pytest.mark.parametrize("kind", ["onnx", "safetensors"])
def test_any_changed_byte_is_noticed(files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    original = files[kind].read_bytes()
    copied = tmp_path / files[kind].name
    places = [0, 9, *np.random.default_rng(0).integers(len(original), size=12).tolist(), len(original) - 1]
    places.append(original.index(CHECKSUM.encode()) + len(CHECKSUM) + 8)
    for place in places:
        changed = bytearray(original)
        changed[place] ^= 1
        copied.write_bytes(bytes(changed))
        with pytest.raises(UserError, match=r"changed after|not a model|checksum"):
            open_model(copied)
    copied.write_bytes(original)
    assert open_model(copied).description.labels == LABELS


def test_metadata_of_onnx_that_are_not_utf8_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(files["onnx"].read_bytes())
    data[data.index(LABELS[0].encode())] = 0xFF
    (tmp_path / "model.onnx").write_bytes(resealed(bytes(data)))
    with pytest.raises(UserError, match="not UTF-8; export it again"):
        open_model(tmp_path / "model.onnx")


def test_a_torch_program_is_opened_only_if_the_user_trusts_it(files: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"opening one runs code that is in it.*--trust"):
        open_model(files["torch"])
    assert open_model(files["torch"], trust=True).description.space == SPACE
    assert [path.name for path in files["torch"].parent.iterdir() if "certificate" in path.name] == []


def test_a_program_of_a_network_is_saved_for_any_batch(run: Path, tmp_path: Path) -> None:
    network = open_stored(run).network.train()
    checksum = save_program(network, tmp_path / "network.pt2", Description("s", "{}", SHAPE, (), scaled=False))
    assert network.training
    assert checksum == sha256((tmp_path / "network.pt2").read_bytes())
    x = torch.randn(3, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.export.load(tmp_path / "network.pt2").module()(x), network.eval()(x), atol=1e-5, rtol=1e-5
        )


def test_an_export_that_differs_is_refused() -> None:
    same, other = (lambda x: x), (lambda x: x + 2e-4)
    assert verify(same, same, Description("s", "{}", (3,), ()), torch.rand(4, 3)) == 0
    for wrong in (other, lambda x: x * torch.nan):
        with pytest.raises(UserError, match="differs from its source"):
            verify(same, wrong, Description("s", "{}", (3,), ()), torch.rand(4, 3))


def test_nothing_is_overwritten_unless_forced(files: dict[str, Path], run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    target.write_text("mine")
    stored = open_stored(run)
    with pytest.raises(UserError, match="exists already"):
        export_network(stored.network, target, "onnx", stored.description, images(2))
    assert target.read_text() == "mine"
    export_network(stored.network, target, "onnx", stored.description, images(2), force=True)
    assert target.read_bytes() == files["onnx"].read_bytes(), "and an export is the same every time"


def test_inputs_of_another_shape_or_type_are_refused(files: dict[str, Path]) -> None:
    model = open_model(files["onnx"])
    for wrong in (torch.rand(2, 3, 8, 8), torch.rand(1, 8, 8), torch.rand(1, 1, 8, 8).double()):
        with pytest.raises(UserError, match="takes float32 inputs N×1×8×8"):
            model(wrong)


def test_export_and_predict_on_the_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = stored_runs.write_images(tmp_path)
    answers = []
    for kind, chosen in FORMATS.items():
        file = tmp_path / f"net{chosen.suffix}"
        code, out, err = run_cli(capsys, "export", run, "--format", kind, "-o", file, "--json")
        assert (code, err) == (0, "")
        written = json.loads(out)
        assert written["sha256"] == sha256(file.read_bytes())
        assert written["largest_difference"] < 1e-4
        assert written["images_compared"] > 0
        code, out, err = run_cli(capsys, "predict", file, *paths, "--json", "--trust")
        assert (code, err) == (0, "")
        answers.append(json.loads(out))
    assert [row["image"] for row in answers[0]] == [str(path) for path in paths]
    assert answers[0][0]["label"] in LABELS
    for answer in answers[1:]:
        assert [row["label"] for row in answer] == [row["label"] for row in answers[0]]
        assert [row["probability"] for row in answer] == pytest.approx(
            [row["probability"] for row in answers[0]], abs=1e-5
        )
    inputs = data.load("embedded:size=8").validation.inputs[:3].float()
    expected = source(run, inputs).softmax(1)
    assert [row["label"] for row in answers[0]] == [LABELS[i] for i in expected.argmax(1).tolist()]
    code, out, _ = run_cli(capsys, "export", run, "-o", tmp_path / "by-suffix.safetensors")
    assert code == 0
    assert open_model(tmp_path / "by-suffix.safetensors").description.scaled
    code, out, _ = run_cli(capsys, "predict", run, tmp_path, "--json")
    found = {row["image"]: row["label"] for row in json.loads(out)}
    assert {row["image"]: row["label"] for row in answers[0]}.items() <= found.items(), "a run, and a folder of images"
    classes = tmp_path / "set"
    for name in ("a", "b"):
        (classes / name).mkdir(parents=True)
        shutil.copy(paths[0], classes / name)
    code, out, _ = run_cli(capsys, "predict", run, classes, "--json")
    assert [(row["image"], row["label"]) for row in json.loads(out)] == [
        (str(classes / name / paths[0].name), answers[0][0]["label"]) for name in ("a", "b")
    ], "a folder of classes"
    (tmp_path / "empty").mkdir()
    assert "holds no image" in refused(capsys, "predict", run, tmp_path / "empty")
    code, out, _ = run_cli(capsys, "predict", tmp_path / "net.onnx", paths[0])
    assert answers[0][0]["label"] in out
    assert f"{answers[0][0]['probability']:.4f}" in out


def test_faults_of_files_are_a_sentence(
    run: Path, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [image] = stored_runs.write_images(tmp_path, 1)
    broken = tmp_path / "broken.onnx"
    content = bytearray(files["onnx"].read_bytes())
    content[len(content) // 2] ^= 1
    broken.write_bytes(bytes(content))
    assert "checksum does not match" in refused(capsys, "predict", broken, image)
    assert "checksum does not match" in refused(capsys, "certify", broken)
    foreign = tmp_path / "foreign.onnx"
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], [])), foreign)
    assert "not a model that budgetnet exported" in refused(capsys, "predict", foreign, image)
    assert "endings of a model file" in refused(capsys, "predict", image, image)
    assert "cannot be read" in refused(capsys, "predict", tmp_path / "absent.onnx", image)
    assert "cannot be read" in refused(capsys, "predict", files["onnx"], files["onnx"])
    assert "exists already" in refused(capsys, "export", run, "-o", files["onnx"])
    assert "ends in .pt2" in refused(capsys, "export", run, "--format", "torch", "-o", tmp_path / "a.onnx")
    assert "no finished run" in refused(capsys, "export", tmp_path, "-o", tmp_path / "b.onnx")
    assert "model file already" in refused(capsys, "export", files["onnx"], "-o", tmp_path / "b.onnx")


def test_an_unknown_operator_is_a_sentence_even_if_the_seal_fits(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.load(files["onnx"])
    model.graph.node[0].op_type = "Frobnicate"
    for entry in model.metadata_props:
        if entry.key == CHECKSUM:
            entry.value = "0" * 64
    data_ = model.SerializeToString(deterministic=True)
    file = tmp_path / "unknown.onnx"
    file.write_bytes(data_.replace(b"0" * 64, sha256(data_).encode()))
    [image] = stored_runs.write_images(tmp_path, 1)
    assert "Frobnicate" in refused(capsys, "predict", file, image)


def test_a_folder_that_cannot_be_written_to_is_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """/sys lets nobody create files, not even the administrator that tests may run as."""
    folder = Path("/sys")
    before = sorted(folder.iterdir())
    for kind in ("onnx", "safetensors"):
        said = refused(capsys, "export", run, "--format", kind, "-o", folder / f"model.{kind}")
        assert "cannot be written" in said
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_a_sentence(run: Path, files: dict[str, Path], tmp_path: Path, missing: str) -> None:
    [image] = stored_runs.write_images(tmp_path, 1)
    target = tmp_path / "never.onnx"
    program = (
        f"import sys; sys.modules[{missing!r}] = None\nfrom budgetnet.cli import main\nsys.exit(main(sys.argv[1:]))"
    )

    def said(*arguments: object) -> str:
        command = [sys.executable, "-c", program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    assert "pip install 'budgetnet[export]'" in said("export", run, "-o", target)
    assert not target.exists()
    if missing == "onnxruntime":
        assert "pip install 'budgetnet[export]'" in said("predict", files["onnx"], image)


def test_help_teaches_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("certify", "export", "predict"):
        code, out, _ = run_cli(capsys, command, "--help")
        assert code == 0
        assert f"budgetnet {command} " in out.split("\n", 2)[2]


def test_descriptions_that_are_none_are_refused() -> None:
    with pytest.raises(UserError, match="does not describe itself"):
        Description.from_strings({"space": "x"}, "file.onnx")
