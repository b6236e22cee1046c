"""The data set inside the package."""

from importlib.resources import files

import torch

from budgetnet.data import Augmentation, load
from budgetnet.data.embedded import from_mosaic, to_mosaic


def test_balanced_splits_of_grey_images_without_any_file() -> None:
    data = load()
    assert (data.name, data.task, data.input_shape) == ("embedded", "classification", (1, 28, 28))
    assert data.augmentation == Augmentation(crop=2, flip=True)
    for split, count in ((data.train, 6000), (data.validation, 1000), (data.test, 2000)):
        assert len(split) == count
        assert torch.bincount(split.targets).tolist() == [count // 10] * 10
        assert (split.inputs.dtype, split.targets.dtype) == (torch.uint8, torch.int64)


def test_the_images_are_what_their_labels_say() -> None:
    """Nearest class mean: 67 % on the full Fashion-MNIST; labels out of step with images would give 10 %."""
    data = load()
    images = data.train.inputs.flatten(1).float()
    means = torch.stack([images[data.train.targets == label].mean(0) for label in range(10)])
    guesses = torch.cdist(data.test.inputs.flatten(1).float(), means).argmin(1)
    accuracy = (guesses == data.test.targets).float().mean()
    assert 0.6 < accuracy < 0.75


def test_no_image_is_in_two_splits() -> None:
    data = load()
    images = torch.cat([split.inputs.flatten(1) for split in (data.train, data.validation, data.test)])
    assert len({image.numpy().tobytes() for image in images}) == 9000


def test_any_prefix_is_balanced_and_options_apply() -> None:
    data = load("embedded:size=14,limit=500,validation=2000,flip=false")
    assert (data.input_shape, len(data.train), len(data.validation)) == ((1, 14, 14), 500, 2000)
    assert torch.bincount(data.train.targets).tolist() == [50] * 10
    assert data.augmentation == Augmentation(crop=1, flip=False)


def test_a_mosaic_holds_the_images_in_order() -> None:
    images = torch.randint(0, 256, (300, 1, 28, 28), dtype=torch.uint8)
    mosaic = to_mosaic(images)
    assert torch.equal(mosaic[28:56, 56:84], images[102, 0])
    assert torch.equal(from_mosaic(mosaic).inputs, images)


def test_the_file_is_small_and_its_licence_is_beside_it() -> None:
    package = files("budgetnet.data")
    assert len(package.joinpath("embedded.png").read_bytes()) < 6_000_000
    assert "Zalando SE" in package.joinpath("embedded.LICENSE").read_text(encoding="utf-8")
