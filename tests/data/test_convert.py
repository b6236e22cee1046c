"""A user's own arrays and data sets."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from budgetnet.data import Split, as_split, check_labels

IMAGES = torch.randint(0, 256, (6, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 2, 1, 0])


class Items(Dataset):
    """A map-style data set of given items, which counts how many were asked for."""

    def __init__(self, items: list) -> None:
        self.items, self.asked = items, 0

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int):
        self.asked += 1
        return self.items[index]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


def pillow_items() -> list:
    return [
        (Image.fromarray(image.permute(1, 2, 0).numpy()), int(label))
        for image, label in zip(IMAGES, LABELS, strict=True)
    ]


SOURCES = {
    "tensors": (IMAGES, LABELS),
    "list of tensors": [IMAGES, LABELS],
    "arrays": (IMAGES.numpy(), LABELS.numpy().astype(np.uint8)),
    "unsigned": (IMAGES.numpy(), LABELS.numpy().astype(np.uint16)),
    "split": Split(IMAGES, LABELS),
    "tensor data set": TensorDataset(IMAGES, LABELS),
    "items": Items([(image.numpy(), int(label)) for image, label in zip(IMAGES, LABELS, strict=True)]),
    "pillow": Items(pillow_items()),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_same_split(source: object) -> None:
    for split, count in ((as_split(source), 6), (as_split(source, 4), 4), (as_split(source, 100), 6)):
        assert torch.equal(split.inputs, IMAGES[:count])
        assert torch.equal(split.targets, LABELS[:count])
        assert (split.inputs.dtype, split.targets.dtype) == (torch.uint8, torch.int64)


def test_only_what_is_used_is_read() -> None:
    items = Items(pillow_items())
    as_split(items, 2)
    assert items.asked == 2


def test_a_read_only_array_is_copied() -> None:
    array = IMAGES.numpy().copy()
    array.flags.writeable = False
    split = as_split((array, LABELS))
    split.inputs.zero_()
    assert array.any()


def test_doubles_become_floats() -> None:
    inputs = np.random.default_rng(0).normal(size=(6, 7))
    split = as_split((inputs, LABELS))
    assert split.inputs.dtype == torch.float32
    np.testing.assert_allclose(split.inputs.numpy(), inputs, rtol=1e-6)


def test_label_maps_from_pillow_images() -> None:
    maps = torch.randint(0, 3, (6, 5, 4), dtype=torch.uint8)
    items = [(image, Image.fromarray(label.numpy())) for image, label in zip(IMAGES, maps, strict=True)]
    assert torch.equal(as_split(Items(items)).targets, maps.long())


BAD = {
    "limit": ((IMAGES, LABELS), 0, "limit is 0"),
    "negative limit": ((IMAGES, LABELS), -3, "-3"),
    "lengths": ((IMAGES, LABELS[:4]), None, "6 inputs"),
    "empty pair": ((IMAGES[:0], LABELS[:0]), None, "(0, 3, 5, 4)"),
    "empty data set": (Items([]), None, "Items holds no example"),
    "integers": ((IMAGES.long(), LABELS), None, "torch.int64"),
    "not finite": ((torch.tensor([[1.0], [float("nan")]]), LABELS[:2]), None, "NaN"),
    "no channels": ((IMAGES[:, 0], LABELS), None, "(6, 5, 4)"),
    "channels last": ((torch.zeros(2, 8, 8, 3, dtype=torch.uint8), LABELS[:2]), None, "N×H×W×C"),
    "float labels": ((IMAGES, LABELS.float()), None, "torch.float32"),
    "negative label": ((IMAGES, LABELS - 1), None, "label -1"),
    "label shape": ((IMAGES, LABELS[:, None]), None, "(6, 1)"),
    "map of another size": ((IMAGES, torch.zeros(6, 4, 4, dtype=torch.int64)), None, "(6, 4, 4)"),
    "sizes": (Items([(IMAGES[0], 0), (IMAGES[1, :, :3], 1)]), None, "example 1 has shape (3, 3, 4)"),
    "no pair": (Items([IMAGES[0]]), None, "example 0 is Tensor"),
    "no numbers": (Items([("a word", 0)]), None, "str"),
    "stream": (Stream(), None, "Stream"),
    "nothing": (None, None, "NoneType"),
}


@pytest.mark.parametrize(("source", "limit", "word"), BAD.values(), ids=BAD)
def test_bad_sources_are_refused(source: object, limit: int | None, word: str, refuses) -> None:
    with refuses(word):
        as_split(source, limit)


def test_labels_outside_the_range(refuses) -> None:
    check_labels(LABELS, 3, "mine")
    check_labels(torch.tensor([[[0, 255]]]), 3, "mine")
    with refuses("mine", "label 2", "2 classes", "between 0 and 1"):
        check_labels(LABELS, 2, "mine")
    with refuses("label 255", "3 classes"):
        check_labels(torch.tensor([0, 255]), 3, "mine")
    with refuses("label 7", "255 for a pixel to ignore"):
        check_labels(torch.tensor([[[0, 7]]]), 3, "mine")
