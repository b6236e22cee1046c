"""Everything random follows from a seed, a purpose and numbers: the one place that makes generators of them."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, purpose: str, number: int) -> torch.Generator:
    """A generator of its own for one purpose.

    Args:
        seed: The seed of the run.
        purpose: What is drawn, such as `search` or `starts`.
        number: Of the step, where a purpose has several.

    Returns:
        A generator whose stream is not related to those of neighbouring seeds and numbers.
    """
    digest = hashlib.blake2b(repr((seed, purpose, number)).encode(), digest_size=7).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))
