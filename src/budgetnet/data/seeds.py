"""Everything random follows from a purpose and numbers: the one place that makes seeds and generators of them."""

from __future__ import annotations

import hashlib

import torch


def seed_of(purpose: str, *key: int) -> int:
    """A seed for one purpose.

    Args:
        purpose: What is drawn, such as `order`, `search` or `starts`.
        key: The seed of the run, and numbers such as an epoch or a step.

    Returns:
        A seed of 63 bits; neighbouring keys give unrelated ones, since they are hashed.
    """
    digest = hashlib.blake2b(repr((purpose, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def generator_of(purpose: str, *key: int) -> torch.Generator:
    """A generator of its own for one purpose; arguments as in `seed_of`."""
    return torch.Generator().manual_seed(seed_of(purpose, *key))
