"""Segmentation from end to end: a search on two folders, its pictures and report, exports, and predictions."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import budgetnet
from budgetnet.cli import main
from budgetnet.data import load
from budgetnet.data.images import read_image, read_label_map
from budgetnet.export import FORMATS, open_model
from budgetnet.pictures.report import write_report
from tests.segmented import search_options, write_folders
from tests.small_runs import refused, run_cli

Capture = pytest.CaptureFixture[str]
CLASSES = ["0", "1", "2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_folders(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "shapes"
    assert main([*search_options(data), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def files(run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The network of the run in every format."""
    folder = tmp_path_factory.mktemp("files")
    found = {kind: folder / f"model{chosen.suffix}" for kind, chosen in FORMATS.items()}
    for kind, path in found.items():
        assert main(["export", str(run), "--format", kind, "-o", str(path)]) == 0
    return found


def scores(run: Path, data: str, part: str) -> tuple[float, float]:
    """Pixel accuracy and mean intersection over union of a run, class by class over all pixels at once."""
    split = getattr(load(data), part)
    with torch.no_grad():
        predicted = budgetnet.load(run).model(split.inputs).argmax(1).numpy()
    truth = split.targets.numpy()
    predicted, truth = predicted[truth != 255], truth[truth != 255]
    overlaps = [
        ((predicted == c) & (truth == c)).sum() / ((predicted == c) | (truth == c)).sum()
        for c in range(3)
        if ((predicted == c) | (truth == c)).any()
    ]
    return float((predicted == truth).mean()), float(np.mean(overlaps))


def test_the_summary_has_pixel_accuracy_and_mean_iou(run: Path, data: str, capsys: Capture) -> None:
    summary = json.loads((run / "summary.json").read_text())
    for part in ("validation", "test"):
        accuracy, overlap = scores(run, data, part)
        assert summary[f"{part}_accuracy"] == pytest.approx(accuracy, abs=1e-6)
        assert summary[f"{part}_mean_iou"] == pytest.approx(overlap, abs=1e-6)
    assert summary["validation_accuracy"] > 0.7, "it learns"
    code, out, _ = run_cli(capsys, "show", run)
    assert code == 0
    words = " ".join(out.split())
    assert f"test accuracy {summary['test_accuracy']:.2%}" in words
    assert f"test mean IoU {summary['test_mean_iou']:.2%}" in words


def test_the_pictures_are_the_first_validation_examples(run: Path, data: str) -> None:
    split = load(data).validation
    with torch.no_grad():
        predicted = budgetnet.load(run).model(split.inputs).argmax(1)
    assert len(list((run / "pictures").iterdir())) == 18
    for i in range(6):
        assert torch.equal(read_image(run / "pictures" / f"{i + 1}-image.png"), split.inputs[i])
        assert torch.equal(read_label_map(run / "pictures" / f"{i + 1}-truth.png").long(), split.targets[i])
        assert torch.equal(read_label_map(run / "pictures" / f"{i + 1}-prediction.png").long(), predicted[i])


def test_the_report_shows_them_with_words(run: Path, tmp_path: Path) -> None:
    page = (run / "report.html").read_text()
    assert "pixel accuracy and" in page
    assert "test mean IoU" in page
    shown = re.findall(r'<img alt="([^"]+)" src="data:image/png;base64,([^"]+)"', page)
    names = [f"{i}-{kind}.png" for i in range(1, 7) for kind in ("image", "truth", "prediction")]
    assert [base64.b64decode(code) for _, code in shown] == [(run / "pictures" / name).read_bytes() for name in names]
    truth = read_label_map(run / "pictures" / "1-truth.png").numpy()
    assert shown[1][0].startswith("True label map of image 1: 0 ")
    assert f"1 {100 * (truth == 1).mean():.1f} %" in " ".join(shown[1][0].split())
    assert "ignored" in page
    before = {path.name: path.read_bytes() for path in (run / "pictures").iterdir()}
    try:
        (run / "pictures" / "1-truth.png").write_bytes(b"\x89PNG no more")
        (run / "pictures" / "2-truth.png").write_bytes(before["2-image.png"])
        (run / "pictures" / "3-image.png").unlink()
        assert write_report([run], tmp_path / "some.html").read_text().count("data:image/png") == 9
        for path in (run / "pictures").iterdir():
            path.unlink()
        page = write_report([run], tmp_path / "none.html").read_text()
        assert "Image, truth and prediction" not in page
    finally:
        for name, content in before.items():
            (run / "pictures" / name).write_bytes(content)


def test_every_format_gives_the_same_label_maps(run: Path, files: dict[str, Path], data: str) -> None:
    inputs = load(data).validation.inputs
    with torch.no_grad():
        expected = budgetnet.load(run).model(inputs)
    for path in files.values():
        model = open_model(path, trust=True)
        assert (model.description.task, list(model.description.labels)) == ("segmentation", CLASSES)
        torch.testing.assert_close(model(inputs.float()), expected, atol=1e-4, rtol=1e-4)
        assert main(["certify", str(path), "--trust"]) == 0


def test_predict_gives_shares_and_label_maps_as_large_as_the_image(
    files: dict[str, Path], tmp_path: Path, capsys: Capture
) -> None:
    images = [tmp_path / "small.png", tmp_path / "large.jpg"]
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(images[0])
    Image.fromarray(random.integers(0, 256, (48, 80, 3), dtype=np.uint8)).save(images[1])
    for kind, path in files.items():
        out = tmp_path / kind
        code, printed, err = run_cli(capsys, "predict", path, *images, "-o", out, "--json", "--trust")
        assert (code, err) == (0, "")
        for row, image, scale in zip(json.loads(printed), images, ((1, 1), (3, 5)), strict=True):
            assert row["label_map"] == str(out / f"{image.stem}.png")
            labels = read_label_map(out / f"{image.stem}.png")
            assert labels.shape == read_image(image).shape[1:]
            assert list(row["shares"]) == CLASSES
            blocks = labels[scale[0] // 2 :: scale[0], scale[1] // 2 :: scale[1]]
            assert torch.equal(blocks.repeat_interleave(scale[0], 0).repeat_interleave(scale[1], 1), labels)
            for name, share in row["shares"].items():
                assert share == pytest.approx(float((blocks == int(name)).float().mean()))
    assert f"{row['shares']['0']:.2%}" in run_cli(capsys, "predict", path, *images, "--trust")[1]


def test_predict_replaces_nothing_unasked(files: dict[str, Path], tmp_path: Path, capsys: Capture) -> None:
    image, maps = tmp_path / "a.png", tmp_path / "maps"
    Image.new("RGB", (16, 16)).save(image)
    original = image.read_bytes()
    onnx = files["onnx"]
    assert run_cli(capsys, "predict", onnx, image, "-o", maps)[0] == 0
    assert "exists already" in refused(capsys, "predict", onnx, image, "-o", maps)
    assert run_cli(capsys, "predict", onnx, image, "-o", maps, "--force")[0] == 0
    assert "exists already" in refused(capsys, "predict", onnx, image, "-o", tmp_path, "--force")
    assert image.read_bytes() == original
    other = tmp_path / "other" / "a.png"
    other.parent.mkdir()
    other.write_bytes(original)
    assert "two images" in refused(capsys, "predict", onnx, image, other, "-o", tmp_path / "both")
    assert "cannot be made" in refused(capsys, "predict", onnx, image, "-o", image)


def test_a_space_for_classification_is_refused(data: str, tmp_path: Path, capsys: Capture) -> None:
    options = ("search", "--data", data, "--space", "neural-fabric:width=2,scales=3,filters=4", "--out", tmp_path / "x")
    assert "task=segmentation" in refused(capsys, *options)
