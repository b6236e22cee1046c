"""Seeds: the same for the same purpose and numbers, unrelated for neighbours."""

import itertools

import torch

from budgetnet.data.seeds import generator_of, seed_of


def test_seeds_are_the_same_again_and_differ_in_every_part() -> None:
    keys = [(purpose, *key) for purpose in ("order", "search") for key in itertools.product(range(3), range(3))]
    seeds = [seed_of(*key) for key in keys]  # type: ignore[arg-type]
    assert seeds == [seed_of(*key) for key in keys]  # type: ignore[arg-type]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of("order", 1, 2) != seed_of("order", 12)


def test_streams_of_neighbouring_numbers_are_not_related() -> None:
    draws = torch.stack([torch.rand(2000, generator=generator_of("search", 0, step)) for step in range(8)])
    correlations = torch.corrcoef(draws) - torch.eye(8)
    assert float(correlations.abs().max()) < 0.1
    assert torch.equal(draws[3], torch.rand(2000, generator=generator_of("search", 0, 3)))
