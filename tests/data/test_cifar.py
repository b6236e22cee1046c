"""CIFAR-10 and CIFAR-100 from files in the official format."""

from pathlib import Path

import numpy as np
import pytest
import torch

from budgetnet.data import Augmentation, load


def test_cifar10_in_order_with_the_last_training_images_held_out(cifar10) -> None:
    root, images, labels = cifar10
    data = load("cifar10:validation=6", root)
    assert (data.name, data.task, data.input_shape) == ("cifar10", "classification", (3, 32, 32))
    assert data.classes == tuple(f"class {i}" for i in range(10))
    assert data.augmentation == Augmentation(crop=4, flip=True)
    for split, part in ((data.train, slice(0, 34)), (data.validation, slice(34, 40)), (data.test, slice(40, 48))):
        np.testing.assert_array_equal(split.inputs.numpy(), images[part])
        assert split.targets.tolist() == labels[part]
        assert (split.inputs.dtype, split.targets.dtype) == (torch.uint8, torch.int64)


def test_reduced_protocol(cifar10) -> None:
    root, images, labels = cifar10
    data = load("cifar10:size=16,limit=20,validation=6", root)
    means = images.reshape(48, 3, 16, 2, 16, 2).astype(np.float64).mean((3, 5))
    assert data.input_shape == (3, 16, 16)
    assert data.augmentation == Augmentation(crop=2, flip=True)
    assert (len(data.train), len(data.validation), len(data.test)) == (20, 6, 8)
    for split, part in ((data.train, slice(0, 20)), (data.validation, slice(34, 40)), (data.test, slice(40, 48))):
        assert np.abs(split.inputs.numpy() - means[part]).max() <= 0.5
        assert split.targets.tolist() == labels[part]


def test_a_limit_above_the_number_of_images_uses_all(cifar10) -> None:
    assert len(load("cifar10:limit=1000000,validation=6", cifar10[0]).train) == 34


def test_the_root_may_be_the_folder_itself_or_come_from_the_environment(cifar10, monkeypatch) -> None:
    root, _, _ = cifar10
    assert len(load("cifar10:validation=6", root / "cifar-10-batches-py").train) == 34
    monkeypatch.setenv("BUDGETNET_DATA", str(root))
    assert len(load("cifar10:validation=6").train) == 34


def test_cifar100_uses_the_fine_labels(tmp_path: Path, python2_pickle) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 3072), dtype=np.uint8)
    fine = [int(label) for label in np.random.default_rng(1).integers(0, 100, 12)]
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, part in (("train", slice(0, 8)), ("test", slice(8, 12))):
        content = {b"coarse_labels": [0] * len(fine[part]), b"fine_labels": fine[part], b"data": images[part]}
        (folder / name).write_bytes(python2_pickle(content))
    names = [f"fine {i}".encode() for i in range(100)]
    (folder / "meta").write_bytes(python2_pickle({b"fine_label_names": names, b"coarse_label_names": [b"x"] * 20}))
    data = load("cifar100:validation=3", tmp_path)
    assert data.classes == tuple(f"fine {i}" for i in range(100))
    assert (data.train.targets.tolist(), data.validation.targets.tolist()) == (fine[:5], fine[5:8])
    assert data.test.targets.tolist() == fine[8:]
    np.testing.assert_array_equal(data.validation.inputs.numpy(), images[5:8].reshape(-1, 3, 32, 32))


def test_a_label_outside_the_range_names_the_file(cifar10, python2_pickle, refuses) -> None:
    root, images, _ = cifar10
    file = root / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(python2_pickle({b"labels": [0] * 7 + [10], b"data": images[:8].reshape(8, -1)}))
    with refuses(file, "label 10", "between 0 and 9"):
        load("cifar10", root)


DAMAGED = {
    "labels missing": {b"data": np.zeros((2, 3072), np.uint8)},
    "data missing": {b"labels": [1, 2]},
    "images of another size": {b"labels": [1, 2], b"data": np.zeros((2, 100), np.uint8)},
    "too few labels": {b"labels": [1], b"data": np.zeros((2, 3072), np.uint8)},
    "labels as words": {b"labels": [b"a", b"b"], b"data": np.zeros((2, 3072), np.uint8)},
    "data as a list": {b"labels": [1, 2], b"data": [1, 2]},
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_damaged_files_are_refused(cifar10, python2_pickle, content, refuses) -> None:
    root, _, _ = cifar10
    file = root / "cifar-10-batches-py" / "test_batch"
    file.write_bytes(python2_pickle(content))
    with refuses(file, "not an official CIFAR file"):
        load("cifar10:validation=6", root)


def test_damaged_class_names_are_refused(cifar10, python2_pickle, refuses) -> None:
    file = cifar10[0] / "cifar-10-batches-py" / "batches.meta"
    file.write_bytes(python2_pickle({b"label_names": [1, 2]}))
    with refuses(file, "class names"):
        load("cifar10", cifar10[0])
