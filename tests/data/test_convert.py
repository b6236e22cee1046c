"""A user's own arrays and data sets."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from budgetnet.data import Split, as_split, check_labels
from budgetnet.data.convert import check_class_targets

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
    "not finite": ((torch.tensor([[1.0], [float("nan")]]), LABELS[:2]), None, "NaN"),
    "no channels": ((IMAGES[:, 0], LABELS), None, "(6, 5, 4)"),
    "channels last": ((torch.zeros(2, 8, 8, 3, dtype=torch.uint8), LABELS[:2]), None, "N×H×W×C"),
    "sizes": (Items([(IMAGES[0], 0), (IMAGES[1, :, :3], 1)]), None, "example 1 has shape (3, 3, 4)"),
    "no pair": (Items([IMAGES[0]]), None, "example 0 is Tensor"),
    "no label in a dict": (Items([{"image": IMAGES[0]}]), None, "'image'"),
    "nothing but labels": ({"labels": LABELS}, None, "'labels'"),
    "complex inputs": ((torch.zeros(6, 2, dtype=torch.complex64), LABELS), None, "complex64"),
    "complex targets": ((IMAGES, torch.zeros(6, dtype=torch.complex64)), None, "complex64"),
    "targets that are no numbers": ((IMAGES, torch.full((6,), float("nan"))), None, "targets hold NaN"),
    "lengths of two inputs": (({"a": IMAGES, "b": IMAGES[:4]}, LABELS), None, "4 and 6 rows"),
    "texts": ((np.array(["a", "b"]), LABELS[:2]), None, "ndarray"),
    "another structure": (Items([((IMAGES[0], IMAGES[0]), 0), ((IMAGES[0],), 0)]), None, "example 1 has no part 1"),
    "no numbers": (Items([("a word", 0)]), None, "str"),
    "stream": (Stream(), None, "Stream"),
    "nothing": (None, None, "NoneType"),
}


@pytest.mark.parametrize(("source", "limit", "word"), BAD.values(), ids=BAD)
def test_bad_sources_are_refused(source: object, limit: int | None, word: str, refuses) -> None:
    with refuses(word):
        as_split(source, limit)


CLASS_TARGETS = {
    "float labels": (LABELS.float(), "torch.float32"),
    "truth values": (LABELS > 0, "torch.bool"),
    "several targets": ({"a": LABELS}, "dict"),
    "negative label": (LABELS - 1, "label -1"),
    "label shape": (LABELS[:, None], "(6, 1)"),
    "map of another size": (torch.zeros(6, 4, 4, dtype=torch.int64), "(6, 4, 4)"),
    "label out of range": (LABELS + 1, "label 3"),
}


@pytest.mark.parametrize(("targets", "word"), CLASS_TARGETS.values(), ids=CLASS_TARGETS)
def test_targets_that_are_no_classes_are_refused_where_classes_are_needed(targets: object, word: str, refuses) -> None:
    split = as_split((IMAGES, targets))
    with refuses(word):
        check_class_targets(split, 3)


def test_any_numbers_are_inputs_and_targets() -> None:
    generator = np.random.default_rng(0)
    ids, mask = generator.integers(0, 9, (6, 4)), generator.integers(0, 2, (6, 4)).astype(bool)
    values = generator.normal(size=(6, 2))
    expected = {"ids": torch.from_numpy(ids), "mask": torch.from_numpy(mask)}
    rows = [{"ids": i, "mask": m, "target": v} for i, m, v in zip(ids, mask, values, strict=True)]
    for source in (({"ids": ids, "mask": mask}, values), {"ids": ids, "mask": mask, "labels": values}, Items(rows)):
        split = as_split(source)
        assert set(split.inputs) == {"ids", "mask"}
        assert all(torch.equal(split.inputs[name], value) for name, value in expected.items())
        np.testing.assert_allclose(split.targets, values, rtol=1e-6)
        assert split.targets.dtype == torch.float32
        assert len(split) == 6
    for source in ((ids, mask, values), TensorDataset(*map(torch.from_numpy, (ids, mask, values)))):
        first, second = as_split(source).take(2).inputs
        assert torch.equal(first, expected["ids"][:2])
        assert torch.equal(second, expected["mask"][:2])


def test_labels_outside_the_range(refuses) -> None:
    check_labels(LABELS, 3, "mine")
    check_labels(torch.tensor([[[0, 255]]]), 3, "mine")
    with refuses("mine", "label 2", "2 classes", "between 0 and 1"):
        check_labels(LABELS, 2, "mine")
    with refuses("label 255", "3 classes"):
        check_labels(torch.tensor([0, 255]), 3, "mine")
    with refuses("label 7", "255 for a pixel to ignore"):
        check_labels(torch.tensor([[[0, 7]]]), 3, "mine")
