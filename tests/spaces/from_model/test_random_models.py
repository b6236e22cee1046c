"""Random small models out of the parts that people build models from: what holds for the known ones holds for them."""

from __future__ import annotations

import copy

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.extract import extract
from budgetnet.network.slices import Region
from budgetnet.spaces.from_model import from_model
from tests.models import SelfAttention, SqueezeExcite

WIDTH, SIDE = 8, 4


class Residual(nn.Module):
    """x + last(middle(first(x))), with or without the skip."""

    def __init__(self, hidden: int, middle: nn.Module, outputs: int | None = None, skip: bool = True) -> None:
        super().__init__()
        self.first, self.middle = nn.Conv2d(WIDTH, hidden, 1), middle
        self.last, self.norm, self.skip = nn.Conv2d(outputs or hidden, WIDTH, 1), nn.BatchNorm2d(WIDTH), skip

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.last(self.middle(self.first(x))))
        return x + y if self.skip else F.relu(y)


class GatedHalves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        one, two = x.chunk(2, 1)
        return one * torch.sigmoid(two)


class Concatenated(nn.Module):
    """Two branches side by side, then a convolution on both."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(WIDTH, hidden, 3, padding=1), nn.BatchNorm2d(hidden), nn.ReLU())
        self.right = nn.Sequential(nn.Conv2d(WIDTH, hidden, 1), nn.SiLU(), nn.Conv2d(hidden, 4, 1))
        self.join = nn.Conv2d(hidden + 4, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.left(x), self.right(x)], 1))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), SelfAttention(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = x.flatten(2).transpose(1, 2)
        y = y + self.attention(self.norm(y))
        return y.transpose(1, 2).reshape(x.shape)


class Parallel(nn.Module):
    """Two branches that share a norm, both added to the stream."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(WIDTH)
        self.one, self.two = (
            nn.Sequential(nn.Conv2d(WIDTH, hidden, 1), nn.GELU(), nn.Conv2d(hidden, WIDTH, 1)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.one(y) + self.two(y)


def block(kind: str, hidden: int, skip: bool) -> nn.Module:
    middles = {
        "plain": lambda: nn.Sequential(nn.BatchNorm2d(hidden), nn.ReLU(inplace=True)),
        "deep": lambda: nn.Sequential(
            nn.ReLU(), nn.Conv2d(hidden, hidden, 3, padding=1), nn.BatchNorm2d(hidden), nn.ReLU()
        ),
        "depthwise": lambda: nn.Sequential(nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden), nn.Hardswish()),
        "grouped": lambda: nn.Sequential(nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden // 2), nn.ReLU6()),
        "excited": lambda: nn.Sequential(nn.SiLU(), SqueezeExcite(hidden)),
        "normed": lambda: nn.Sequential(nn.GroupNorm(2, hidden), nn.LeakyReLU()),
        "shuffled": lambda: nn.Sequential(nn.ChannelShuffle(2), nn.PReLU(hidden)),
        "dropped": lambda: nn.Sequential(nn.Tanh(), nn.Dropout2d(0.0), nn.AvgPool2d(3, 1, 1)),
    }
    if kind in middles:
        return Residual(hidden, middles[kind](), skip=skip)
    if kind == "gated":
        return Residual(2 * hidden, GatedHalves(), hidden, skip)
    return {"concatenated": Concatenated, "parallel": Parallel}[kind](hidden) if kind != "attending" else Attending()


KINDS = (
    *("plain", "deep", "depthwise", "grouped", "excited", "normed", "shuffled", "dropped"),
    *("gated", "concatenated", "parallel", "attending"),
)
BLOCKS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([4, 6, 12]), st.booleans()), min_size=1, max_size=3)


def build(parts: list[tuple[str, int, bool]]) -> nn.Module:
    torch.manual_seed(0)
    blocks = [block(*part) for part in parts]
    return nn.Sequential(
        nn.Conv2d(3, WIDTH, 3, padding=1), nn.ReLU(), *blocks, nn.Flatten(), nn.Linear(WIDTH * SIDE**2, 3)
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(parts=BLOCKS)
def test_random_models_are_converted_exactly(parts: list[tuple[str, int, bool]]) -> None:
    shared = build(parts)
    model, x = copy.deepcopy(shared), torch.randn(6, 3, SIDE, SIDE)
    net = from_model(shared, x[:2], slices=3)
    assert torch.allclose(net.train()(x), model.train()(x), atol=1e-4)
    gates = EdgeDistribution(net.graph, 0.3).sample(4, torch.Generator().manual_seed(1), connected=True).gates
    for number, row in enumerate(gates[net.graph.live(gates).any(1)]):
        twin = extract(net.train(number % 2 == 0), net.graph.architecture(row))
        assert torch.allclose(net(x, row), twin(x), atol=1e-5)
        live = net.graph.live(row[None])[0]
        count = 0.0
        for operation, module in zip(net.graph.operations, net.edge_modules, strict=True):
            if isinstance(module, Region) and bool(live[list(operation.edges)].any()):
                numbers = module.tensor_counts(lambda t: float(t.numel() * isinstance(t, nn.Parameter)))
                kept = [live[list(axis)][None] for axis in operation.axes] if operation.bundle else []
                count += float(numbers.evaluate(kept)[0])
        assert count == sum(p.numel() for p in twin.parameters())
    with torch.no_grad():
        together = net.eval()(x, gates)
        for i, rows in enumerate(torch.arange(6).tensor_split(len(gates))):
            assert torch.allclose(together[rows], net(x, gates[i])[rows], atol=1e-5)
