"""Rows of tensors: handing different rows to several readers, and adding several tensors into one, row by row.

Both have gradients that copy each row once, where autograd's own would fill and add a whole tensor for every part.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from budgetnet.network.executor.sums import add_up
from budgetnet.network.layers import channels_last

Rows = slice | Tensor | None
"""Which rows of a tensor: all (None), neighbours (a slice, no copy), or any (an ascending index on the same device)."""
LARGE = 1 << 16
"""Numbers in a sum from which on a pass over memory costs more than some further calls."""
RUNS = 8
"""Up to so many runs of neighbours, the rows of a large sum are written run by run."""


def spread(value: Tensor, parts: Sequence[Rows], gap: Rows) -> tuple[Tensor, ...]:
    """These rows of a value for each of its readers; `gap` are the rows that the first one does not read."""
    return tuple(_Spread.apply(value, tuple(parts), gap))  # type: ignore[no-untyped-call]


def gather(
    terms: Sequence[Tensor], places: Sequence[Rows], rows: int, gap: Rows, own: Sequence[bool] | None = None
) -> Tensor:
    """The sum of terms that each cover some of so many rows; `gap` are the rows that the first one leaves out.

    A term that is `own` belongs to nobody else and may be written to.
    """
    if len(terms) == 1 and places[0] is None:
        return terms[0]
    if all(place is None for place in places):
        order, in_place, _ = add_up(own or [False] * len(terms))
        total = terms[order[0]]
        for term in order[1:]:
            total, in_place = _plus(total, terms[term], in_place), True
        return total
    return cast(Tensor, _Gather.apply(rows, tuple(places), gap, *terms))  # type: ignore[no-untyped-call]


def _plus(total: Tensor, term: Tensor, own: bool) -> Tensor:
    """In place where that keeps the precision, which differs between terms under autocast."""
    return total.add_(term) if own and torch.promote_types(total.dtype, term.dtype) == total.dtype else total + term


@contextlib.contextmanager
def lent(part: Tensor, value: Tensor, rows: Rows) -> Iterator[Tensor]:
    """Lends copied rows of a value to a module, and takes them again in the backward pass instead of keeping them.

    Otherwise every reader would keep its copy until then, and memory would grow with the number of readers. What the
    module saves of the part, itself or a view of it, is remembered by its place in the part's storage.
    """
    if not isinstance(rows, Tensor) or not torch.is_grad_enabled():
        yield part
        return
    source, storage, dtype = value.detach(), part.untyped_storage()._cdata, part.dtype
    written, read, loan = value._version, part._version, [part]

    def pack(saved: Tensor) -> Tensor | _View:
        # the part is alive while it is lent, so no other storage can be the same object
        same = saved.layout is torch.strided and saved.untyped_storage()._cdata == storage
        lazy = saved.is_neg() or saved.is_conj()
        if not same or lazy or saved.dtype != dtype or loan[0]._version != read:
            return saved
        return _View(saved.shape, saved.stride(), int(saved.storage_offset()))

    def unpack(packed: Tensor | _View) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        if source._version != written:
            raise RuntimeError("the value of a node was written into before the backward pass of an edge that reads it")
        return take(source, rows).as_strided(*packed)

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            yield part
    finally:
        loan.clear()  # `pack` lives until the backward pass, and the part must not


class _View(NamedTuple):
    """Where a view lies in the storage of the rows that it is a view of."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, parts: tuple[Rows, ...], gap: Rows) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.rows, ctx.parts, ctx.gap = len(value), parts, gap
        return tuple(take(value, part) for part in parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        known = [(gradient, part) for gradient, part in zip(gradients, ctx.parts, strict=True) if gradient is not None]
        if not known:
            return None, None, None
        first = gradients[0] is not None
        return _total([g for g, _ in known], [p for _, p in known], ctx.rows, ctx.gap, known=first), None, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: int, places: tuple[Rows, ...], gap: Rows, *terms: Tensor) -> Tensor:
        ctx.places, ctx.dtypes = places, [term.dtype for term in terms]
        return _total(terms, places, rows, gap, known=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        parts = [
            take(gradient, place).to(dtype) if needed else None
            for place, dtype, needed in zip(ctx.places, ctx.dtypes, ctx.needs_input_grad[3:], strict=True)
        ]
        return None, None, None, *parts


def _total(terms: Sequence[Tensor], places: Sequence[Rows], rows: int, gap: Rows, *, known: bool) -> Tensor:
    """The sum, in a tensor of its own. Only the gap has to be filled with zeros, if it is known to be the first's."""
    first = terms[0]
    dtype = first.dtype
    for term in terms[1:]:
        dtype = torch.promote_types(dtype, term.dtype)  # they differ under autocast
    last = channels_last(first)
    total = torch.empty(
        (rows, *first.shape[1:]),
        dtype=dtype,
        device=first.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )
    runs = [_runs(place, rows) for place in places] if total.numel() >= LARGE else [None]
    if all(place is not None and len(place) <= RUNS for place in runs):
        _sum_runs(total, terms, [place for place in runs if place is not None])
    else:
        _sum_indexed(total, terms, places, gap if known else slice(0, rows))
    return total


def _runs(place: Rows, rows: int) -> list[tuple[int, int]] | None:
    """Where the runs of neighbours among some rows begin and end; None if the host does not know."""
    if not isinstance(place, Tensor):
        return [(0, rows) if place is None else (place.start, place.stop)]
    if place.device.type != "cpu":
        return None
    index = place.tolist()
    starts = [i for i in range(len(index)) if i == 0 or index[i] != index[i - 1] + 1]
    return [(index[a], index[b - 1] + 1) for a, b in zip(starts, [*starts[1:], len(index)], strict=True)]


def _sum_runs(total: Tensor, terms: Sequence[Tensor], places: Sequence[list[tuple[int, int]]]) -> None:
    """Writes every row of the sum once, wherever the same terms cover neighbours: nothing is filled and added to."""
    ends = sorted({0, len(total), *(end for place in places for run in place for end in run)})
    for start, stop in pairwise(ends):
        parts = []
        for term, place in zip(terms, places, strict=True):
            offset = 0
            for first, last in place:
                if first <= start and stop <= last:
                    parts.append(term[offset + start - first : offset + stop - first])
                    break
                offset += last - first
        _add(total[start:stop], parts)


def _add(target: Tensor, parts: Sequence[Tensor]) -> None:
    """Writes a sum into a tensor."""
    if not parts:
        target.zero_()
    elif len(parts) == 1:
        target.copy_(parts[0])
    else:
        torch.add(parts[0], parts[1], out=target)
        for part in parts[2:]:
            target.add_(part)


def _sum_indexed(total: Tensor, terms: Sequence[Tensor], places: Sequence[Rows], gap: Rows) -> None:
    """Copies the first term, fills the rows that it leaves out, and adds the others."""
    last = channels_last(total)
    target, dtype = _ordered(total, last), total.dtype
    if places[0] is not None:
        if isinstance(gap, Tensor):
            target.index_fill_(0, gap, 0)
        elif gap is not None:
            total[gap].zero_()
    for number, (term, place) in enumerate(zip(terms, places, strict=True)):
        if isinstance(place, Tensor):
            write = target.index_add_ if number else target.index_copy_
            write(0, place, _ordered(term, last).to(dtype))
        else:
            where = total if place is None else total[place]
            where.add_(term) if number else where.copy_(term)


def take(value: Tensor, rows: Rows) -> Tensor:
    """These rows of a value; a copy only if they are no neighbours."""
    if rows is None:
        return value
    if isinstance(rows, slice):
        return value[rows]
    last = channels_last(value)
    taken = _ordered(value, last).index_select(0, rows)
    return taken.permute(0, 3, 1, 2) if last else taken


def _ordered(value: Tensor, last: bool) -> Tensor:
    """The value with its dimensions as they lie in memory: operations on rows would change the order otherwise."""
    return value.permute(0, 2, 3, 1) if last else value
