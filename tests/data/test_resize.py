"""Area means against exact fractions, nearest labels against the pixel at the centre."""

from fractions import Fraction

import pytest
import torch

from budgetnet.data.resize import area, nearest


def pixels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def area_at(image: torch.Tensor, size: int, row: int, column: int) -> float:
    """The mean over one target cell, in exact arithmetic."""
    height, width = image.shape
    step_y, step_x = Fraction(height, size), Fraction(width, size)
    total = Fraction(0)
    for y in range(height):
        overlap_y = max(Fraction(0), min((row + 1) * step_y, y + 1) - max(row * step_y, y))
        for x in range(width):
            overlap_x = max(Fraction(0), min((column + 1) * step_x, x + 1) - max(column * step_x, x))
            total += overlap_y * overlap_x * int(image[y, x])
    return float(total / (step_y * step_x))


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 4), (7, 9, 4), (5, 5, 3), (6, 3, 5)])
def test_area_is_the_mean_over_the_covered_area(height: int, width: int, size: int) -> None:
    image = pixels(height, width)
    result = area(image[None], size)[0]
    assert result.shape == (size, size)
    for row in range(size):
        for column in range(size):
            assert abs(int(result[row, column]) - area_at(image, size, row, column)) <= 0.5 + 1e-4


def test_many_images_at_once_are_as_one_by_one() -> None:
    images = pixels(1500, 2, 6, 6)
    together = area(images, 4)
    assert together.dtype == torch.uint8
    assert torch.equal(together, torch.stack([area(image, 4) for image in images]))


def test_area_of_the_same_size_changes_nothing() -> None:
    images = pixels(2, 3, 6, 6)
    assert torch.equal(area(images, 6), images)


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 4), (7, 9, 4), (256, 250, 64), (3, 2, 5)])
def test_nearest_takes_the_label_at_the_centre(height: int, width: int, size: int) -> None:
    maps = pixels(2, height, width)
    result = nearest(maps, size)
    for row in range(size):
        for column in range(size):
            y, x = int((row + 0.5) * height / size), int((column + 0.5) * width / size)
            assert torch.equal(result[:, row, column], maps[:, y, x])
