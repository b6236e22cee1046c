"""Batches: complete, deterministic, and resumable from any of them."""

import pytest
import torch

from budgetnet.data import Augmentation, Split, batches, prepare


@pytest.fixture(scope="module")
def split() -> Split:
    images = torch.randint(0, 256, (23, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Split(images, torch.arange(23))


AUGMENTATION = Augmentation(2, True)


def run(split: Split, seed: int = 3, epoch: int = 5, **options):
    defaults = {"augmentation": AUGMENTATION, "shuffle": True}
    return list(batches(split, 4, seed=seed, epoch=epoch, **{**defaults, **options}))


def same(first, second) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in pairs)


def test_prepare_scales_bytes_to_minus_one_and_one() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    expected = torch.tensor([2 * value / 255 - 1 for value in range(256)]).view(1, 1, 16, 16)
    torch.testing.assert_close(prepare(every), expected, atol=1e-6, rtol=0)
    assert (prepare(every).min(), prepare(every).max()) == (-1, 1)
    assert torch.equal(every.flatten(), torch.arange(256, dtype=torch.uint8))


def test_prepare_returns_floats_as_they_are() -> None:
    inputs = torch.randn(3, 2)
    assert prepare(inputs) is inputs


def test_in_order_without_shuffle_or_augmentation(split: Split) -> None:
    parts = run(split, shuffle=False, augmentation=None)
    assert [len(x) for x, _ in parts] == [4, 4, 4, 4, 4, 3]
    assert torch.equal(torch.cat([y for _, y in parts]), split.targets)
    assert torch.equal(torch.cat([x for x, _ in parts]), split.inputs.float() / 127.5 - 1)


def test_shuffle_visits_every_example_once_with_its_target(split: Split) -> None:
    parts = run(split, augmentation=None)
    order = torch.cat([y for _, y in parts])
    assert sorted(order.tolist()) == list(range(23))
    assert order.tolist() != list(range(23))
    assert torch.equal(torch.cat([x for x, _ in parts]), prepare(split.inputs[order]))


def test_the_random_draws_depend_on_seed_and_epoch_only(split: Split) -> None:
    first = run(split)
    torch.manual_seed(1234)
    assert same(first, run(split))
    assert not same(first, run(split, seed=4))
    assert not same(first, run(split, epoch=6))
    assert not same(run(split, seed=5, epoch=3), run(split, seed=3, epoch=5))


def test_every_epoch_has_its_own_order_and_its_own_augmentation(split: Split) -> None:
    orders = {tuple(torch.cat([y for _, y in run(split, epoch=k, augmentation=None)]).tolist()) for k in range(5)}
    assert len(orders) == 5
    assert not same(run(split, epoch=0, shuffle=False), run(split, epoch=1, shuffle=False))


def test_every_batch_has_its_own_augmentation() -> None:
    image = torch.arange(1, 65, dtype=torch.uint8).view(1, 1, 8, 8)
    parts = run(Split(image.repeat(40, 1, 1, 1), torch.zeros(40, dtype=torch.int64)))
    assert len({x.numpy().tobytes() for x, _ in parts}) == len(parts)


@pytest.mark.parametrize("start", range(8))
@pytest.mark.parametrize("drop_last", [False, True])
def test_start_continues_as_if_never_interrupted(split: Split, start: int, drop_last: bool) -> None:
    whole = run(split, drop_last=drop_last)
    assert len(whole) == (5 if drop_last else 6)
    assert same(run(split, drop_last=drop_last, start=start), whole[start:])


def test_iterations_side_by_side_do_not_disturb_each_other(split: Split) -> None:
    both = zip(
        batches(split, 4, seed=3, epoch=5, augmentation=AUGMENTATION, shuffle=True),
        batches(split, 4, seed=3, epoch=5, augmentation=AUGMENTATION, shuffle=True),
        strict=True,
    )
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in both)


def test_device_and_no_images(split: Split) -> None:
    inputs, targets = next(batches(split, 4, seed=0, epoch=0, shuffle=True, device="meta"))
    assert (inputs.device.type, targets.device.type) == ("meta", "meta")
    table = Split(torch.randn(5, 7), torch.arange(5))
    (batch,) = batches(table, 8, seed=0, epoch=0, shuffle=False)
    assert torch.equal(batch[0], table.inputs)


def test_a_batch_size_of_zero_is_refused_at_once(split: Split, refuses) -> None:
    with refuses("0"):
        batches(split, 0, seed=0, epoch=0, shuffle=True)
