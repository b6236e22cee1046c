"""Crop and flip against slices of the padded image, one example at a time."""

import time

import pytest
import torch
from torch import Tensor

from budgetnet.data import Augmentation


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def views(image: Tensor, crop: int, flip: bool, fill: int) -> list[Tensor]:
    """Every result that crop and flip may give for an image C×H×W, by slicing."""
    _, height, width = image.shape
    padded = torch.full((len(image), height + 2 * crop, width + 2 * crop), fill, dtype=image.dtype)
    padded[:, crop : crop + height, crop : crop + width] = image
    crops = [padded[:, y : y + height, x : x + width] for y in range(2 * crop + 1) for x in range(2 * crop + 1)]
    return crops + [cut.flip(-1) for cut in crops] if flip else crops


def which(image: Tensor, candidates: list[Tensor]) -> int:
    (found,) = [index for index, candidate in enumerate(candidates) if torch.equal(image, candidate)]
    return found


@pytest.mark.parametrize(("crop", "flip"), [(2, True), (2, False), (0, True)])
def test_each_image_is_a_slice_of_its_padded_self_and_every_slice_occurs(crop: int, flip: bool) -> None:
    images = torch.randint(1, 256, (800, 3, 6, 9), dtype=torch.uint8, generator=generator(1))
    targets = torch.arange(800)
    moved, same = Augmentation(crop, flip)(images, targets, generator())
    assert torch.equal(same, targets)
    assert moved.dtype == torch.uint8
    seen = {which(result, views(image, crop, flip, 0)) for image, result in zip(images, moved, strict=True)}
    assert len(seen) == (2 * crop + 1) ** 2 * (2 if flip else 1)


def test_label_maps_move_with_their_image_and_the_outside_is_ignored() -> None:
    images = torch.randint(1, 256, (50, 2, 7, 5), dtype=torch.uint8, generator=generator(1))
    maps = torch.randint(0, 3, (50, 7, 5), generator=generator(2))
    moved, labels = Augmentation(1, True)(images, maps, generator())
    for image, label_map, new_image, new_map in zip(images, maps, moved, labels, strict=True):
        view = which(new_image, views(image, 1, True, 0))
        assert torch.equal(new_map, views(label_map[None], 1, True, 255)[view][0])


def test_the_generator_alone_decides() -> None:
    images = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8, generator=generator(1))
    augmentation = Augmentation(2, True)
    first, _ = augmentation(images, torch.zeros(64), generator(5))
    torch.manual_seed(99)
    again, _ = augmentation(images, torch.zeros(64), generator(5))
    other, _ = augmentation(images, torch.zeros(64), generator(6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_no_augmentation_leaves_any_input_alone() -> None:
    inputs, targets = torch.randn(4, 7), torch.arange(4)
    assert Augmentation()(inputs, targets, generator()) == (inputs, targets)


def test_inputs_that_are_no_images_are_refused(refuses) -> None:
    with refuses("(4, 7)"):
        Augmentation(1)(torch.randn(4, 7), torch.arange(4), generator())


def test_a_batch_takes_about_a_millisecond() -> None:
    images = torch.zeros(128, 3, 32, 32, dtype=torch.uint8)
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        Augmentation(4, True)(images, torch.zeros(128), generator())
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.004  # four times the aim: other work may share the core
