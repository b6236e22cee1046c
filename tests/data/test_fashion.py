"""Fashion-MNIST from idx files, packed or not."""

from pathlib import Path

import numpy as np
import pytest

from budgetnet.data import Augmentation, load

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 28, 28), dtype=np.uint8)
LABELS = np.arange(30, dtype=np.uint8) % 10


def write(folder: Path, suffix: str, write_idx) -> None:
    for part, rows in (("train", slice(0, 20)), ("t10k", slice(20, 30))):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", IMAGES[rows])
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", LABELS[rows])


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("place", ["fashion-mnist", "FashionMNIST/raw", "."])
def test_read_from_every_place(tmp_path: Path, suffix: str, place: str, write_idx) -> None:
    write(tmp_path / place, suffix, write_idx)
    data = load("fashion-mnist:validation=5", tmp_path)
    assert (data.input_shape, len(data.classes), data.classes[9]) == ((1, 28, 28), 10, "Ankle boot")
    assert data.augmentation == Augmentation(crop=2, flip=True)
    for split, part in ((data.train, slice(0, 15)), (data.validation, slice(15, 20)), (data.test, slice(20, 30))):
        np.testing.assert_array_equal(split.inputs.numpy()[:, 0], IMAGES[part])
        np.testing.assert_array_equal(split.targets.numpy(), LABELS[part])


def damage(file: Path, how: str, write_idx) -> None:
    if how == "cut":
        file.write_bytes(file.read_bytes()[:-5])
    elif how == "magic":
        file.write_bytes(b"\x00\x00\x0d\x03" + file.read_bytes()[4:])
    elif how == "empty":
        file.write_bytes(b"")
    else:
        write_idx(file, np.zeros((3, 28, 28)))


@pytest.mark.parametrize(
    ("how", "word"),
    [("cut", "15680"), ("magic", "not an idx"), ("empty", "not an idx"), ("few", "3 images but 20 labels")],
)
def test_damaged_files_are_refused(tmp_path: Path, how: str, word: str, write_idx, refuses) -> None:
    write(tmp_path, "", write_idx)
    damage(tmp_path / "train-images-idx3-ubyte", how, write_idx)
    with refuses(tmp_path, word):
        load("fashion-mnist", tmp_path)


def test_a_damaged_archive_is_refused(tmp_path: Path, write_idx, refuses) -> None:
    write(tmp_path, ".gz", write_idx)
    file = tmp_path / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-6])
    with refuses(file):
        load("fashion-mnist", tmp_path)


def test_a_label_outside_the_range_names_the_file(tmp_path: Path, write_idx, refuses) -> None:
    write(tmp_path, "", write_idx)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte", np.full(10, 11))
    with refuses(tmp_path / "t10k-labels-idx1-ubyte", "label 11"):
        load("fashion-mnist", tmp_path)
