"""Part Labels in its official layout, and two folders of images and label maps."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from budgetnet.data import Augmentation, Split, batches, load

WriteImage = Callable[[Path, np.ndarray], None]
COLOURS = np.array([[0, 0, 255], [0, 255, 0], [255, 0, 0]], np.uint8)
LISTS = {"train": ["Ann_Lee 0001", "Ann_Lee 2", "Bo 0001"], "validation": ["Cy 0003"], "test": ["Di 0001", "Ed 12"]}


@pytest.fixture
def parts(tmp_path: Path, write_image: WriteImage) -> tuple[Path, list[np.ndarray], list[np.ndarray]]:
    """A data folder with Part Labels of six faces; the decoded photographs and the label maps, in list order."""
    folder, random = tmp_path / "lfw-parts", np.random.default_rng(0)
    photographs, maps = [], []
    for name, lines in LISTS.items():
        for line in lines:
            person, number = line.split()
            face = f"{person}_{number.zfill(4)}"
            file = folder / "lfw_funneled" / person / f"{face}.jpg"
            write_image(file, random.integers(0, 256, (10, 10, 3)).repeat(25, 0).repeat(25, 1))
            labels = random.integers(0, 3, (250, 250))
            write_image(folder / "parts_lfw_funneled_gt_images" / f"{face}.ppm", COLOURS[labels])
            photographs.append(np.asarray(Image.open(file)).transpose(2, 0, 1))
            maps.append(labels)
        (folder / f"parts_{name}.txt").write_text("\n".join(lines) + "\n")
    return tmp_path, photographs, maps


def padded(array: np.ndarray) -> np.ndarray:
    result = np.zeros((*array.shape[:-2], 256, 256), array.dtype)
    result[..., 3:253, 3:253] = array
    return result


def test_official_splits_padded_to_256(parts) -> None:
    root, photographs, maps = parts
    data = load("lfw-parts:validation=1", root)
    assert (data.task, data.classes) == ("segmentation", ("background", "skin", "hair"))
    assert (data.input_shape, data.augmentation) == ((3, 256, 256), Augmentation(crop=0, flip=True))
    for split, part in ((data.train, slice(0, 3)), (data.validation, slice(3, 4)), (data.test, slice(4, 6))):
        np.testing.assert_array_equal(split.inputs.numpy(), [padded(image) for image in photographs[part]])
        np.testing.assert_array_equal(split.targets.numpy(), [padded(labels) for labels in maps[part]])
        assert str(split.targets.dtype) == "torch.int64"


def test_reduced_to_64(parts) -> None:
    root, photographs, maps = parts
    data = load("lfw-parts:size=64,limit=2,validation=1", root)
    assert (len(data.train), len(data.validation), len(data.test)) == (2, 1, 2)
    means = padded(photographs[1]).reshape(3, 64, 4, 64, 4).astype(float).mean((2, 4))
    assert np.abs(data.train.inputs[1].numpy() - means).max() <= 0.5
    np.testing.assert_array_equal(data.train.targets[1].numpy(), padded(maps[1])[2::4, 2::4])


def test_the_default_validation_is_the_official_one(parts, refuses) -> None:
    with refuses("validation=500", "4 training images"):
        load("lfw-parts", parts[0])


def test_flipped_batches_keep_image_and_labels_together(parts) -> None:
    data = load("lfw-parts:size=32,validation=1", parts[0])
    many = Split(data.train.inputs[:1].repeat(20, 1, 1, 1), data.train.targets[:1].repeat(20, 1, 1))
    ((inputs, targets),) = batches(many, 20, seed=0, epoch=0, augmentation=data.augmentation, shuffle=False)
    image = data.train.inputs[0].float() / 127.5 - 1
    flipped = [bool((one == image.flip(-1)).all()) for one in inputs]
    for one, labels, flip in zip(inputs, targets, flipped, strict=True):
        assert bool((one == (image.flip(-1) if flip else image)).all())
        assert bool((labels == (data.train.targets[0].flip(-1) if flip else data.train.targets[0])).all())
    assert 0 < sum(flipped) < 20


def test_bad_part_labels_are_refused(parts, write_image: WriteImage, refuses) -> None:
    root, _, maps = parts
    folder = root / "lfw-parts"
    file = folder / "parts_lfw_funneled_gt_images" / "Bo_0001.ppm"
    colours = COLOURS[maps[2]]
    colours[7, 9] = (1, 2, 3)
    write_image(file, colours)
    with refuses(file, "(1, 2, 3)"):
        load("lfw-parts:validation=1", root)
    file.unlink()
    with refuses(file, "missing"):
        load("lfw-parts:validation=1", root)
    (folder / "parts_test.txt").write_text("Di one\n")
    with refuses(folder / "parts_test.txt", "Di one"):
        load("lfw-parts:validation=1", root)
    (folder / "parts_test.txt").write_text("")
    with refuses(folder / "parts_test.txt", "no image"):
        load("lfw-parts:validation=1", root)
    (folder / "parts_test.txt").unlink()
    with refuses(folder, "parts_test.txt"):
        load("lfw-parts:validation=1", root)


def fill(root: Path, write_image: WriteImage, part: str = "", count: int = 4) -> str:
    """Images whose red is their label map times ten, and the data set's specification."""
    random = np.random.default_rng(count)
    for i in range(count):
        labels = random.permutation(np.arange(48) % 3).reshape(6, 8)
        labels[0, 0] = 255
        write_image(root / "images" / part / f"{i}.png", np.stack([np.where(labels == 255, 0, labels) * 10] * 3, -1))
        write_image(root / "labels" / part / f"{i}.png", labels)
    return f"segmentation-folder:images={root / 'images'},labels={root / 'labels'}"


def test_two_folders(tmp_path: Path, write_image: WriteImage) -> None:
    data = load(fill(tmp_path, write_image) + ",validation=1")
    assert (data.task, data.classes, data.input_shape) == ("segmentation", ("0", "1", "2"), (3, 6, 8))
    assert (len(data.train), len(data.validation), data.test) == (3, 1, None)
    assert data.augmentation == Augmentation(crop=0, flip=True)
    for split in (data.train, data.validation):
        inside = split.targets != 255
        assert int((~inside).sum()) == len(split)
        assert bool((split.inputs[:, 0].long() == split.targets * 10)[inside].all())


def test_two_folders_with_train_and_test(tmp_path: Path, write_image: WriteImage) -> None:
    fill(tmp_path, write_image, "train", 5)
    data = load(fill(tmp_path, write_image, "test", 2) + ",size=4,classes=5,grey=true")
    assert (len(data.train), len(data.validation), len(data.test)) == (4, 1, 2)
    assert (data.input_shape, data.classes) == ((1, 4, 4), ("0", "1", "2", "3", "4"))


def test_palette_label_maps_give_their_indices(tmp_path: Path, write_image: WriteImage) -> None:
    spec = fill(tmp_path, write_image)
    labels = np.arange(48).reshape(6, 8) % 3
    for i in range(4):
        image = Image.fromarray(labels.astype(np.uint8), "L")
        image.putpalette([9, 9, 9, 200, 0, 0, 0, 200, 0])
        image.save(tmp_path / "labels" / f"{i}.png")
    np.testing.assert_array_equal(load(spec).train.targets[0].numpy(), labels)


def test_bad_label_maps_are_refused(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    spec, file = fill(tmp_path, write_image), tmp_path / "labels" / "2.png"
    write_image(file, np.full((6, 8), 7))
    with refuses(file, "label 7", "3 classes"):
        load(spec + ",classes=3")
    with refuses("0, 1, 2, 7", "classes="):
        load(spec)
    write_image(file, np.zeros((6, 8, 3)))
    with refuses(file, "colour image"):
        load(spec)
    write_image(file, np.zeros((6, 9)))
    with refuses("9×6", "8×6", "size="):
        load(spec)
    file.write_text("no image")
    with refuses(file, "cannot be read"):
        load(spec)
    file.unlink()
    with refuses(tmp_path / "images" / "2.png", "no label map"):
        load(spec)


def test_label_maps_of_another_size_than_their_images_are_refused(tmp_path, write_image, refuses) -> None:
    spec = fill(tmp_path, write_image)
    for i in range(4):
        write_image(tmp_path / "labels" / f"{i}.png", np.arange(20).reshape(4, 5) % 2)
    with refuses("5×4", "8×6", "size="):
        load(spec)


def test_two_files_of_one_name_are_refused(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    spec = fill(tmp_path, write_image)
    for folder in ("labels", "images"):
        write_image(tmp_path / folder / "2.bmp", np.zeros((6, 8)))
        with refuses(tmp_path / folder / "2.bmp", "2.png", "one name"):
            load(spec)
        (tmp_path / folder / "2.bmp").unlink()


def test_folders_must_be_given_exist_and_hold_images(tmp_path: Path, write_image: WriteImage, refuses) -> None:
    with refuses("images=FOLDER"):
        load("segmentation-folder")
    (tmp_path / "images").mkdir()
    with refuses("labels=FOLDER"):
        load(f"segmentation-folder:images={tmp_path / 'images'}")
    (tmp_path / "labels").mkdir()
    with refuses(tmp_path / "images", "no image"):
        load(f"segmentation-folder:images={tmp_path / 'images'},labels={tmp_path / 'labels'}")
