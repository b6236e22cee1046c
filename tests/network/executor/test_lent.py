"""Rows lent to a module are taken again in the backward pass: as the very view that the module saved."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from budgetnet.network.executor.plan import group_of_rows
from budgetnet.network.executor.rows import lent
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork

GATES = torch.tensor([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)
"""Edges a and c run on rows that are an index in some groups: neither all rows nor neighbours."""

SHAPE = (3, 8, 8)


class View(nn.Module):
    """Applies a function that makes a view of its input, and then what saves that view for the backward pass."""

    def __init__(self, view: Callable[[Tensor], Tensor], convolve: bool) -> None:
        super().__init__()
        self.view, self.convolve = view, convolve
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(SHAPE))

    def forward(self, x: Tensor) -> Tensor:
        seen = self.view(x)
        return self.conv(seen) if self.convolve else seen * self.weight


def halves(x: Tensor) -> Tensor:
    """Products of two halves of one storage, which have equal shapes and strides but different offsets."""
    return torch.cat([x[..., :4] * x[..., 4:], x[..., 4:] * x[..., :4]], -1)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "the input itself": lambda x: x,
    "transposed": lambda x: x.transpose(2, 3),
    "transposed twice": lambda x: x.transpose(2, 3).transpose(2, 3),
    "permuted and reshaped": lambda x: x.permute(0, 2, 3, 1).reshape(-1, *SHAPE),
    "reshaped and transposed": lambda x: x.reshape(len(x), 8, 3, 8).transpose(1, 2),
    "flipped": lambda x: x.flip(2),
    "slices of equal shape": halves,
    "a channel, expanded": lambda x: x[:, 1:2].expand_as(x),
    "a channel of the middle": lambda x: x.narrow(1, 1, 1) * x,
    "flat and back": lambda x: x.flatten(1).view(len(x), *SHAPE),
    "the imaginary part": lambda x: torch.complex(x, x.transpose(2, 3)).conj().imag * x,
    "diagonals": lambda x: x * x.diagonal(dim1=2, dim2=3)[..., None],
    "rows by stride": lambda x: x[:, :, ::2].repeat_interleave(2, 2) * x,
}


def network(module: Callable[[], nn.Module], last: bool) -> SuperNetwork:
    graph = Graph([Edge("a", "0", "1"), Edge("b", "0", "1"), Edge("c", "1", "2")])
    torch.manual_seed(0)
    modules = {name: module() for name in graph.index}
    net = SuperNetwork(graph, modules, input_shape=SHAPE, stem=nn.BatchNorm2d(3))
    return net.double().eval().to(memory_format=torch.channels_last if last else torch.contiguous_format)


def all_gradients(net: SuperNetwork, x: Tensor) -> list[Tensor]:
    found = [x, *net.parameters()]
    return [torch.zeros_like(t) if t.grad is None else t.grad.clone() for t in found]


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("convolve", [True, False], ids=["convolution", "product"])
@pytest.mark.parametrize("view", VIEWS)
def test_gradients_of_groups_are_those_of_the_groups_alone(view: str, convolve: bool, last: bool) -> None:
    net = network(lambda: View(VIEWS[view], convolve), last)
    x = torch.randn((8, *SHAPE), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()
    net(x, GATES).square().sum().backward()
    together = all_gradients(net, x)
    net.zero_grad()
    x.grad = None
    group = group_of_rows(len(x), len(GATES))
    for g, row in enumerate(GATES):
        net(x[group == g], row).square().sum().backward()
    for one, other in zip(together, all_gradients(net, x), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.transpose(2, 3), lambda x: x.flatten(1), lambda x: x[:, 1:]])
def test_no_copy_of_the_rows_is_kept_for_the_backward_pass(view: Callable[[Tensor], Tensor]) -> None:
    value = torch.randn((6, *SHAPE), requires_grad=True)
    rows = torch.tensor([0, 2, 3, 5])
    part = value[rows]
    storage = weakref.ref(part.untyped_storage())
    with lent(part, value, rows) as read:
        loss = (view(read) * torch.ones((), requires_grad=True)).sum()
    del part, read
    gc.collect()
    assert storage() is None, "the copy of the rows outlives the module that read it"
    loss.backward()  # type: ignore[no-untyped-call]


def test_rows_that_a_module_wrote_into_are_kept_as_they_were_saved() -> None:
    value, rows = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 2])
    weight = torch.ones((), requires_grad=True)
    with lent(value[rows], value, rows) as read:
        product = read.mul_(10) * weight
    product.sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert float(weight.grad) == 40.0


def test_a_value_that_was_written_into_before_the_backward_pass_is_refused() -> None:
    value, rows = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 2])
    weight = torch.ones((), requires_grad=True)
    with lent(value[rows], value, rows) as read:
        product = read * weight
    value.zero_()
    with pytest.raises(RuntimeError, match="written into"):
        product.sum().backward()  # type: ignore[no-untyped-call]
