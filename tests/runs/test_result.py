"""A network that was trained further: exported and certified again, with its new weights."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
import torch
from torch.nn import functional as F

import budgetnet
from budgetnet.errors import UserError
from budgetnet.runs.result import Result
from tests.models import encoder_with_inputs
from tests.small_runs import mlp, run_cli, short, vectors


def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Light and dark images, as pixels."""
    generator = torch.Generator().manual_seed(count)
    labels = torch.arange(count) % 2
    noise = torch.randint(0, 120, (count, 1, 8, 8), generator=generator)
    return (noise + 100 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels


def of_vectors(out: Path) -> Result:
    given = {"budgets": ["macs<=60%"], "recipe": short(), "quiet": True}
    result: Result = budgetnet.search(mlp(), vectors(160), vectors(64, 1), out=out, **given)
    return result


def of_images(out: Path) -> Result:
    net = budgetnet.spaces.resnet_fabric(width=1, channels=2, classes=2, input_shape=(1, 8, 8))
    given = {"budgets": ["params<=80%"], "recipe": short(), "quiet": True}
    result: Result = budgetnet.search(net, images(128), images(64), out=out, **given)
    return result


@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_a_model_trained_further_is_exported_and_certified_again(kind: str, tmp_path: Path) -> None:
    result = (of_vectors if kind == "vectors" else of_images)(tmp_path / "run")
    inputs, targets = vectors(64, 3) if kind == "vectors" else images(64)
    before = result.predict(inputs)
    optimizer = torch.optim.SGD(result.model.train().parameters(), 0.05)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(result.model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        expected = result.model.eval()(inputs)
    assert float((expected - before).abs().max()) > 1e-3, "it has learned something"
    torch.testing.assert_close(result.predict(inputs), expected)
    given = inputs.float()
    session = onnxruntime.InferenceSession(
        result.export(tmp_path / "further.onnx").path.read_bytes(), providers=["CPUExecutionProvider"]
    )
    found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: given.numpy()})[0])
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    program = torch.export.load(result.export(tmp_path / "further.pt2").path).module()
    with torch.no_grad():
        torch.testing.assert_close(program(given), expected, atol=1e-4, rtol=1e-4)
    again = result.certify()
    assert again.holds
    assert result.certificate is not None
    assert [(e.cost, e.measured) for e in again.budgets] == [(e.cost, e.measured) for e in result.certificate.budgets]
    (entry,) = result.certify("size<=1kB").budgets
    state = sum(value.numel() * value.element_size() for value in result.network.state_dict().values())
    assert (entry.measured, entry.holds) == (state, state <= 1000)
    if kind == "vectors":
        with pytest.raises(UserError, match=r"of the edges of a space of your own"):
            result.certify("steps(2)<=9")


def test_an_exported_file_of_a_model_trained_further_is_certified_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    tiny = ("--space", "resnet-fabric:width=1,channels=2", "--data", "embedded:limit=256,size=8", "--epochs", "1")
    code, _, err = run_cli(capsys, "search", *tiny, "--budget", "macs<=60%", "--out", run, "--quiet")
    assert code == 0, err
    result = budgetnet.load(run)
    for weight in result.model.parameters():
        weight.data.mul_(1.01)
    result.export(tmp_path / "further.onnx")
    code, out, err = run_cli(capsys, "certify", tmp_path / "further.onnx")
    assert code == 0, err
    assert "the certificate holds" in out


def test_files_of_a_network_with_several_inputs_reproduce_predict(tmp_path: Path) -> None:
    """Token ids and their padding, as a dict: both files take both, by name or in their order."""
    model, example = encoder_with_inputs()
    tokens = torch.randint(0, 10, (48, *example["tokens"].shape[1:]), generator=torch.Generator().manual_seed(1))
    padding = torch.zeros_like(tokens, dtype=torch.bool)
    padding[::2, -2:] = True
    inputs, targets = {"tokens": tokens, "padding": padding}, (tokens[:, 0] > 4).long()
    net = budgetnet.from_model(model, example)
    given = {"budgets": "macs<=80%", "epochs": 0.5, "batch_size": 16, "recipe": "trained:racers=1", "quiet": True}
    result = budgetnet.search(net, (inputs, targets), (inputs, targets), out=tmp_path / "run", **given)
    expected = result.predict(inputs)
    unpadded = result.predict({**inputs, "padding": torch.zeros_like(padding)})
    assert float((unpadded - expected).abs().max()) > 1e-4, "both inputs matter"
    done = result.export(tmp_path / "model.onnx")
    assert done.compared == 48
    session = onnxruntime.InferenceSession(done.path.read_bytes(), providers=["CPUExecutionProvider"])
    found = session.run(None, {name: value.numpy() for name, value in inputs.items()})[0]
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-4, rtol=1e-4)
    program = torch.export.load(result.export(tmp_path / "model.pt2").path).module()
    with torch.no_grad():
        torch.testing.assert_close(program(**inputs), expected, atol=1e-4, rtol=1e-4)
        delivered = torch.export.load(tmp_path / "run" / "network.pt2").module()
        torch.testing.assert_close(delivered(**inputs), expected, atol=1e-4, rtol=1e-4)
    opened = budgetnet.load(tmp_path / "run")
    torch.testing.assert_close(opened.predict(inputs), expected)
    assert opened.certify().holds
    assert opened.certify("params<=1G").budgets[0].measured == sum(p.numel() for p in opened.network.parameters())
    torch.testing.assert_close(
        torch.from_numpy(
            onnxruntime.InferenceSession(opened.export(tmp_path / "again.onnx").path.read_bytes()).run(
                None, {name: value.numpy() for name, value in inputs.items()}
            )[0]
        ),
        expected,
        atol=1e-4,
        rtol=1e-4,
    )
    assert opened.export(tmp_path / "again.safetensors").difference < 1e-4


class Unwritable(torch.nn.Linear):
    """Looks at its values, which no torch program can."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        found = super().forward(input)
        return found if found.is_meta or float(found.detach().sum()) < 1e9 else 2 * found


def test_a_network_that_no_format_holds_is_said_first_and_the_run_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = mlp()
    net.head = Unwritable(net.head.in_features, 3)
    budgetnet.search(net, vectors(96), vectors(32, 1), budgets="macs<=80%", recipe=short(), out=tmp_path / "run")
    said = "".join(capsys.readouterr())
    assert said.index("can be trained but not written") < said.index("no network.pt2 was written")
    for name in ("summary.json", "weights.safetensors", "structure.json", "certificate.json", "report.html"):
        assert (tmp_path / "run" / name).exists(), name
