"""Label maps and images as PNG files: read back as they were, in colours that can be told apart."""

import itertools
from pathlib import Path

import torch

from budgetnet.data.images import read_image, read_label_map
from budgetnet.data.label_maps import colour, image_png, label_map_png


def test_label_maps_are_read_back_as_they_were(tmp_path: Path) -> None:
    labels = torch.arange(256).reshape(8, 32)
    (tmp_path / "map.png").write_bytes(label_map_png(labels))
    assert torch.equal(read_label_map(tmp_path / "map.png").long(), labels)
    red, green, blue = read_image(tmp_path / "map.png")[:, 0, 1].tolist()
    assert (red, green, blue) == colour(1)


def test_images_are_read_back_as_they_were(tmp_path: Path) -> None:
    for channels in (1, 3):
        pixels = torch.randint(0, 256, (channels, 5, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        (tmp_path / "image.png").write_bytes(image_png(pixels))
        assert torch.equal(read_image(tmp_path / "image.png", grey=channels == 1), pixels)


def test_colours_differ_even_without_telling_red_from_green() -> None:
    """In a linear model of deuteranopia only a mix of red and green, and blue, are seen."""
    seen = [((0.63 * r + 0.37 * g), b) for r, g, b in map(colour, range(8))]
    for (a, b), (c, d) in itertools.combinations(seen, 2):
        assert abs(a - c) + abs(b - d) > 25
    assert len({colour(label) for label in (*range(24), 255)}) == 25
