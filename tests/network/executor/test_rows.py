"""Rows handed out and added up: values and gradients as those of masks and plain sums, in every memory format."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from budgetnet.network.executor import rows as module
from budgetnet.network.executor.rows import Rows, gather, spread
from tests.random_graphs import examples

ROWS = 6
masks = st.lists(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS).filter(any), min_size=1, max_size=4)


def as_rows(mask: list[bool]) -> Rows:
    index = [i for i, kept in enumerate(mask) if kept]
    if len(index) == len(mask):
        return None
    if index and index[-1] - index[0] + 1 == len(index):
        return slice(index[0], index[-1] + 1)
    return torch.tensor(index) if index else None


@pytest.fixture(params=[0, 1 << 16], ids=["run by run", "by index"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sums of small tensors both ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", request.param)
        yield


def rest_of(mask: list[bool]) -> Rows:
    return as_rows([not kept for kept in mask]) if not all(mask) else None


def values(rows: int, seed: int, channels_last: bool) -> Tensor:
    made = torch.randn(rows, 3, 2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return made.contiguous(memory_format=torch.channels_last) if channels_last else made


@given(masks, st.booleans())
@examples(80)
def test_readers_get_their_rows_and_give_their_gradients_back(kept: list[list[bool]], channels_last: bool) -> None:
    value = values(ROWS, 0, channels_last).requires_grad_()
    parts = spread(value, [as_rows(mask) for mask in kept], rest_of(kept[0]))
    weights = [values(sum(mask), 1 + i, False) for i, mask in enumerate(kept)]
    for part, mask in zip(parts, kept, strict=True):
        assert torch.equal(part, value[torch.tensor(mask)])
        assert part.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)).backward()  # type: ignore[union-attr]
    expected = torch.zeros(ROWS, 3, 2, 4, dtype=torch.float64)
    for mask, weight in zip(kept, weights, strict=True):
        expected[torch.tensor(mask)] += weight
    assert value.grad is not None
    torch.testing.assert_close(value.grad, expected)


@given(masks, st.booleans())
@examples(80)
def test_a_sum_of_parts_is_the_sum_of_padded_ones(kept: list[list[bool]], channels_last: bool) -> None:
    terms = [values(sum(mask), i, channels_last).requires_grad_() for i, mask in enumerate(kept)]
    total = gather(terms, [as_rows(mask) for mask in kept], ROWS, rest_of(kept[0]))
    expected = torch.zeros(ROWS, 3, 2, 4, dtype=torch.float64)
    for term, mask in zip(terms, kept, strict=True):
        expected[torch.tensor(mask)] += term.detach()
    torch.testing.assert_close(total, expected)
    weight = values(ROWS, 9, False)
    (total * weight).sum().backward()
    for term, mask in zip(terms, kept, strict=True):
        assert term.grad is not None
        torch.testing.assert_close(term.grad, weight[torch.tensor(mask)])


def test_a_reader_that_needs_no_gradient_is_left_out_of_the_sum() -> None:
    value = values(4, 0, True).requires_grad_()
    first, second = spread(value, [slice(0, 3), torch.tensor([0, 3])], slice(3, 4))
    assert first.shape[0] == 3
    second.sum().backward()
    assert value.grad is not None
    assert value.grad.sum((1, 2, 3)).tolist() == [24.0, 0.0, 0.0, 24.0]


def test_parts_of_different_precision_are_summed_in_the_wider_one() -> None:
    narrow = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    wide = torch.ones(3, 3, requires_grad=True)
    total = gather([wide, narrow], [None, torch.tensor([0, 2])], 3, None)
    assert total.dtype == torch.float32
    total.sum().backward()
    assert narrow.grad is not None
    assert narrow.grad.dtype == torch.bfloat16
    assert total[:, 0].tolist() == [2.0, 1.0, 2.0]


@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_agree_with_finite_differences(rows: int) -> None:
    term = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)
    other = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)

    def both(a: Tensor, b: Tensor) -> Tensor:
        total = gather([a, b], [slice(0, rows), torch.tensor([rows])], rows + 1, slice(rows, rows + 1))
        parts = spread(total, [None, torch.tensor([0, rows])], None)
        return parts[0].sum(0) * parts[1].prod(0)

    assert torch.autograd.gradcheck(both, (term, other))
