"""Feeds give the same batches for the same epoch, from any batch on, whatever happens around them."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset

from budgetnet.data.feeds import Feed, make_feed
from budgetnet.errors import UserError
from tests.small_runs import vectors


class Trembling(Dataset[tuple[Tensor, Tensor]]):
    """Random augmentation inside a user's data set."""

    def __init__(self, count: int = 40) -> None:
        self.inputs, self.targets = vectors(count)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index >= len(self):
            raise IndexError
        noise = torch.randn(6) + random.random() + torch.from_numpy(np.random.normal(size=6)).float()
        return self.inputs[index] + noise, self.targets[index]


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Random examples one after the other; it may promise more than it gives."""

    def __init__(self, count: int, promised: int | None = None) -> None:
        self.count, self.promised = count, promised or count

    def __len__(self) -> int:
        return self.promised

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for inputs, target in zip(*vectors(self.count), strict=True):
            yield inputs + torch.randn(6), target


def loader(**options: object) -> DataLoader[tuple[Tensor, Tensor]]:
    return DataLoader(TensorDataset(*vectors(40)), batch_size=8, **options)  # type: ignore[arg-type]


SOURCES = {
    "tensors": lambda: vectors(40),
    "arrays": lambda: tuple(part.numpy() for part in vectors(40)),
    "dataset": lambda: TensorDataset(*vectors(40)),
    "loader": loader,
    "shuffled loader": lambda: loader(shuffle=True),
    "loader with a generator": lambda: loader(shuffle=True, generator=torch.Generator()),
    "loader with a sampler": lambda: loader(sampler=RandomSampler(range(40), generator=torch.Generator())),
    "random data": lambda: DataLoader(Trembling(), batch_size=8, shuffle=True),
    "random examples": Trembling,
    "list of examples": lambda: list(zip(*vectors(40), strict=True)),
    "stream": lambda: Stream(40),
}


def same(one: Iterator[tuple[Tensor, Tensor]], other: Iterator[tuple[Tensor, Tensor]]) -> bool:
    pairs = list(zip(one, other, strict=True))
    assert pairs
    return all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in pairs)


@pytest.fixture(params=SOURCES)
def feed(request: pytest.FixtureRequest) -> Feed:
    return make_feed(SOURCES[request.param](), 8, seed=3)


def test_an_epoch_is_the_same_again(feed: Feed) -> None:
    assert feed.steps == 5
    first = list(feed.training(4))
    torch.randn(9)
    list(feed.training(5))
    assert same(iter(first), feed.training(4))


def test_an_epoch_can_be_entered_anywhere(feed: Feed) -> None:
    whole = list(feed.training(2))
    assert len(whole) == 5
    for start in range(5):
        torch.manual_seed(start)
        assert same(iter(whole[start:]), feed.training(2, start))


def test_batches_do_not_depend_on_what_is_drawn_between_them_nor_change_it(feed: Feed) -> None:
    undisturbed = list(feed.training(1))
    torch.manual_seed(7)
    expected = torch.randn(5)
    torch.manual_seed(7)
    seen, drawn = [], []
    for batch in feed.training(1):
        seen.append(batch)
        drawn.append(torch.randn(1))
    assert same(iter(seen), iter(undisturbed))
    assert torch.equal(torch.cat(drawn), expected)


def test_evaluation_is_the_same_every_time_and_stops_in_time(feed: Feed) -> None:
    assert same(feed.evaluation(), feed.evaluation())
    assert sum(len(inputs) for inputs, _ in feed.evaluation()) == 40
    few = list(feed.evaluation(10))
    assert 10 <= sum(len(inputs) for inputs, _ in few) <= 16
    assert same(iter(few), iter(list(feed.evaluation(10))))


@pytest.mark.parametrize("name", ["tensors", "shuffled loader"])
def test_epochs_and_seeds_differ(name: str) -> None:
    feed, other = make_feed(SOURCES[name](), 8, seed=3), make_feed(SOURCES[name](), 8, seed=4)
    assert not same(feed.training(0), feed.training(1))
    assert not same(feed.training(0), other.training(0))
    examples = torch.cat([inputs for inputs, _ in feed.training(0)])
    assert torch.equal(examples.sort(0).values, vectors(40)[0].sort(0).values), "each example once"


def test_incomplete_batches_are_left_out_and_a_batch_is_at_most_everything() -> None:
    feed = make_feed(vectors(21), 8, seed=0)
    assert feed.steps == len(list(feed.training(0))) == 2
    assert make_feed(vectors(5), 8, seed=0).steps == 1


def test_a_feed_is_taken_as_it_is() -> None:
    feed = make_feed(vectors(21), 8, seed=0)
    assert make_feed(feed, 4, seed=9) is feed


def test_a_loader_of_something_else_than_pairs_is_refused() -> None:
    feed = make_feed(DataLoader(TensorDataset(vectors(8)[0]), batch_size=4), 4, seed=0)
    with pytest.raises(UserError, match="must be a pair"):
        next(feed.training(0))


@pytest.mark.parametrize("source", [7, "text", (torch.zeros(3, 2), torch.zeros(4, dtype=torch.long))])
def test_what_is_no_data_is_refused(source: object) -> None:
    with pytest.raises(UserError):
        make_feed(source, 4, seed=0)


@pytest.mark.parametrize("source", [Trembling(24), DataLoader(Trembling(24), batch_size=8, shuffle=True)])
def test_random_transforms_differ_between_epochs(source: object) -> None:
    feed = make_feed(source, 8, seed=0)
    epochs = [torch.cat([inputs for inputs, _ in feed.training(epoch)]) for epoch in range(3)]
    noise = [epoch.sort(0).values for epoch in epochs]
    assert not any(torch.equal(noise[a], noise[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_processes_read_what_this_one_would_have_read() -> None:
    alone, helped = (make_feed(Trembling(), 8, seed=5, workers=workers) for workers in (0, 2))
    assert same(alone.training(3, 2), helped.training(3, 2))
    assert same(alone.evaluation(), helped.evaluation())


class Broken(Trembling):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 17:
            raise KeyError("no such file")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_set_that_fails_is_named_in_one_sentence(workers: int) -> None:
    feed = make_feed(Broken(), 8, seed=0, workers=workers)
    with pytest.raises(UserError, match=r"^Broken raised KeyError for example 17: 'no such file'; correct .*\.$"):
        list(feed.training(0))


@pytest.mark.parametrize("promised", [48, 400])
def test_a_stream_that_ends_early_is_refused(promised: int) -> None:
    feed = make_feed(Stream(40, promised), 8, seed=0)
    with pytest.raises(UserError, match=f"ended after 5 of the {promised // 8} batches"):
        list(feed.training(0))


def test_lengths_that_are_not_known_or_zero_are_refused() -> None:
    class Endless(IterableDataset[Tensor]):
        def __iter__(self) -> Iterator[Tensor]:
            return iter(())

    for source, words in (
        (Endless(), "how many examples"),
        (DataLoader(Endless()), "not known"),
        (DataLoader(TensorDataset(*vectors(4)), batch_size=8, drop_last=True), "no batch"),
    ):
        with pytest.raises(UserError, match=words):
            make_feed(source, 4, seed=0)


def test_batches_of_any_structure() -> None:
    ids = torch.arange(120).view(40, 3)
    images = torch.randint(0, 256, (40, 1, 2, 2), dtype=torch.uint8)
    for source in ({"ids": ids, "image": images, "labels": ids[:, 0]}, DataLoader(Rows(ids, images), batch_size=8)):
        feed = make_feed(source, 8, seed=1)
        inputs, targets = next(feed.training(0))
        assert torch.equal(inputs["ids"][:, 0], targets)
        assert torch.equal(inputs["image"], images[targets // 3]), "only inputs that are images are scaled"
        assert sum(len(batch["ids"]) for batch, _ in feed.evaluation()) == 40


class Rows(Dataset[dict[str, Tensor]]):
    def __init__(self, ids: Tensor, images: Tensor) -> None:
        self.ids, self.images = ids, images

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"ids": self.ids[index], "image": self.images[index], "label": self.ids[index, 0]}
