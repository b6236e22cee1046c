"""Folders of images by class."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from budgetnet.data import Augmentation, DataSet, load

WriteImage = Callable[[Path, np.ndarray], None]


def fill(folder: Path, count: int, write_image: WriteImage, side: int = 8) -> None:
    """Classes cat, dog and owl; image i of class c has red value 10·i + c everywhere."""
    for label, name in enumerate(("cat", "dog", "owl")):
        for i in range(count):
            pixels = np.zeros((side, side, 3))
            pixels[..., 0] = 10 * i + label
            write_image(folder / name / f"{i:02d}.png", pixels)


def reds(data: DataSet) -> dict[str, list[int]]:
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {name: split.inputs[:, 0, 0, 0].tolist() for name, split in parts.items() if split is not None}


def test_classes_labels_and_a_tenth_held_out(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path, 20, write_image)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.png").write_text("not an image")
    data = load(f"folder:path={tmp_path}")
    assert (data.classes, data.input_shape, data.task) == (("cat", "dog", "owl"), (3, 8, 8), "classification")
    assert (len(data.train), len(data.validation), data.test) == (54, 6, None)
    assert data.augmentation == Augmentation(crop=1, flip=True)
    for split in (data.train, data.validation):
        assert torch.equal(split.inputs[:, 0, 3, 5].long() % 10, split.targets)
    everything = reds(data)["train"] + reds(data)["validation"]
    assert sorted(everything) == sorted(10 * i + label for i in range(20) for label in range(3))


def test_the_order_is_mixed_and_always_the_same(tmp_path: Path, write_image: WriteImage) -> None:
    for name in ("a", "b"):
        fill(tmp_path / name, 20, write_image)
    first, second = (load(f"folder:path={tmp_path / name},validation=20") for name in ("a", "b"))
    assert reds(first) == reds(second)
    assert set(first.validation.targets.tolist()) == {0, 1, 2}


def test_limit_keeps_the_first_and_the_same_validation(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path, 5, write_image)
    whole, few = load(f"folder:path={tmp_path},validation=4"), load(f"folder:path={tmp_path},validation=4,limit=3")
    assert reds(few)["train"] == reds(whole)["train"][:3]
    assert reds(few)["validation"] == reds(whole)["validation"]


def test_train_and_test_folders(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path / "train", 5, write_image)
    write_image(tmp_path / "test" / "owl" / "x.png", np.full((8, 8, 3), 77))
    data = load(f"folder:path={tmp_path},crop=3,flip=false")
    assert (len(data.train), len(data.validation), reds(data)["test"]) == (14, 1, [77])
    assert data.test.targets.tolist() == [2]
    assert data.augmentation == Augmentation(crop=3, flip=False)


def test_size_brings_different_images_together(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path, 3, write_image)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3))
    write_image(tmp_path / "owl" / "wide.png", pixels)
    data = load(f"folder:path={tmp_path},size=4,validation=1")
    assert data.input_shape == (3, 4, 4)
    means = pixels.reshape(4, 3, 4, 5, 3).mean((1, 3)).transpose(2, 0, 1)
    every = torch.cat([data.train.inputs, data.validation.inputs]).numpy()
    assert np.abs(every - means).max((1, 2, 3)).min() <= 0.5


def test_grey_and_colour_files_together(tmp_path: Path, write_image: WriteImage) -> None:
    write_image(tmp_path / "a" / "grey.png", np.full((4, 4), 9))
    write_image(tmp_path / "b" / "colour.png", np.full((4, 4, 3), 9))
    assert load(f"folder:path={tmp_path}").input_shape == (3, 4, 4)
    data = load(f"folder:path={tmp_path},grey=true")
    assert data.input_shape == (1, 4, 4)
    assert set(data.train.inputs.flatten().tolist()) == {9}


def test_a_path_with_commas(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path / "one, two", 2, write_image)
    assert load(f"folder:path={tmp_path / 'one, two'},size=4").input_shape == (3, 4, 4)


def test_different_sizes_are_resized_to_a_stated_side(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path, 3, write_image)
    assert load(f"folder:path={tmp_path},validation=1").notes == ()
    write_image(tmp_path / "dog" / "other.png", np.zeros((90, 70, 3)))
    data = load(f"folder:path={tmp_path},validation=1")
    assert data.input_shape == (3, 8, 8), "most images are that small"
    (note,) = data.notes
    assert "2 sizes" in note
    assert "resized to 8×8" in note
    for name in ("a", "b"):
        write_image(tmp_path / "large" / name / "1.png", np.zeros((90, 190, 3)))
        write_image(tmp_path / "large" / name / "2.png", np.zeros((80, 90, 3)))
    assert load(str(tmp_path / "large")).input_shape == (3, 64, 64)


def test_validation_and_test_folders_are_used(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path / "train", 4, write_image)
    fill(tmp_path / "val", 2, write_image)
    fill(tmp_path / "test", 1, write_image, side=6)
    data = load(f"{tmp_path}:limit=7")
    sizes = (len(data.train), len(data.validation), len(data.test))
    assert sizes == (7, 6, 3)
    assert data.input_shape == (3, 8, 8)
    assert sorted(reds(data)["validation"]) == [0, 1, 2, 10, 11, 12]


def test_a_path_is_a_folder_of_classes(tmp_path: Path, write_image: WriteImage, monkeypatch, refuses) -> None:
    fill(tmp_path / "photos", 4, write_image)
    fill(tmp_path / "odd: name", 4, write_image)
    monkeypatch.chdir(tmp_path)
    for spec in ("photos", "./photos", f"{tmp_path}/photos", "odd: name"):
        assert reds(load(spec)) == reds(load(f"folder:path={tmp_path}/photos"))
    assert load("photos:size=4,validation=3").input_shape == (3, 4, 4)
    with refuses("there is no data set 'pictures'", "sub-folder of images per class"):
        load("pictures")
    with refuses("no option 'sise'"):
        load("photos:sise=4")


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n" + bytes(30)])
def test_an_unreadable_image_is_named(tmp_path: Path, write_image: WriteImage, content: bytes, refuses) -> None:
    fill(tmp_path, 3, write_image)
    (tmp_path / "dog" / "bad.png").write_bytes(content)
    with refuses(tmp_path / "dog" / "bad.png", "cannot be read"):
        load(f"folder:path={tmp_path}")


def test_a_truncated_image_is_named(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    fill(tmp_path, 3, write_image)
    file = tmp_path / "dog" / "bad.jpg"
    write_image(file, np.random.default_rng(0).integers(0, 256, (64, 64, 3)))
    file.write_bytes(file.read_bytes()[:700])
    with refuses(file, "cannot be read"):
        load(f"folder:path={tmp_path},size=8")


def test_an_image_of_16_bits_is_refused(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    fill(tmp_path, 3, write_image)
    file = tmp_path / "dog" / "deep.png"
    Image.fromarray(np.full((8, 8), 1000, np.uint16)).save(file)
    with refuses(file, "uint16", "8 bits"):
        load(f"folder:path={tmp_path}")


def test_an_empty_class_folder_is_named(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    fill(tmp_path, 3, write_image)
    (tmp_path / "bee").mkdir()
    with refuses(tmp_path / "bee", "is empty"):
        load(f"folder:path={tmp_path}")


def test_one_class_is_refused(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    write_image(tmp_path / "only" / "x.png", np.zeros((4, 4)))
    with refuses(tmp_path, "1 sub-folders"):
        load(f"folder:path={tmp_path}")


def test_a_test_class_without_training_images_is_refused(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    fill(tmp_path / "train", 3, write_image)
    write_image(tmp_path / "test" / "yak" / "x.png", np.zeros((8, 8, 3)))
    with refuses(tmp_path / "test" / "yak", "without training images"):
        load(f"folder:path={tmp_path}")


def test_the_path_must_be_given_and_exist(tmp_path: Path, refuses) -> None:
    with refuses("path=FOLDER"):
        load("folder")
    with refuses(tmp_path / "no", "does not exist"):
        load(f"folder:path={tmp_path / 'no'}")
