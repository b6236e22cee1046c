"""The ResNet fabric: its connections written out again from the definition, and its spine against a ResNet by hand."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from budgetnet.errors import UserError
from budgetnet.spaces import resnet_fabric
from tests.random_graphs import inputs, randomise


def state(group: int, block: int, width: int) -> str:
    while block == 0 and group > 0:
        group, block = group - 1, width
    return f"g{group}b{block}"


def expected_connections(width: int, groups: int) -> list[tuple[str, str, str]]:
    """(kind, source, target) in order of insertion."""
    found = []
    for g, j in itertools.product(range(groups), range(1, width + 1)):
        target = state(g, j, width)
        found.append(("spine", state(g, j - 1, width), target))
        if g >= 1:
            found.append(("s", state(g - 1, width - j, width), target))
            if j >= 2:
                found.append(("l", state(g - 1, width - j + 1, width), target))
            if j <= width - 1:
                found.append(("r", state(g - 1, width - j - 1, width), target))
    return found


@pytest.mark.parametrize(("width", "groups"), [(1, 1), (1, 3), (2, 3), (3, 3), (5, 3), (3, 2), (2, 4)])
def test_every_connection_is_a_block_and_a_skip_in_the_defined_order(width: int, groups: int) -> None:
    net = resnet_fabric(width, channels=1, groups=groups)
    expected = [
        (f"{target}.{kind}.{part}", source, target)
        for kind, source, target in expected_connections(width, groups)
        for part in ("block", "skip")
    ]
    assert [(edge.name, edge.source, edge.target) for edge in net.graph.edges] == expected


@pytest.mark.parametrize("side", [32, 28, 17, 9])
def test_shapes_double_their_channels_and_halve_their_side_to_its_ceiling(side: int) -> None:
    net = resnet_fabric(width=2, channels=3, input_shape=(1, side, side + 4))
    for node, shape in zip(net.graph.nodes, net.shapes.nodes, strict=True):
        factor = 2 ** int(node[1])
        assert shape == (3 * factor, -(-side // factor), -(-(side + 4) // factor))


def test_skips_are_identities_exactly_where_the_shape_stays() -> None:
    net = resnet_fabric(width=3, channels=2, input_shape=(3, 8, 8))
    shapes = dict(zip(net.graph.nodes, net.shapes.nodes, strict=True))
    for edge, module in zip(net.graph.edges, net.edge_modules, strict=True):
        same = shapes[edge.source] == shapes[edge.target]
        assert isinstance(module, nn.Identity) == (edge.name.endswith("skip") and same)


def test_a_source_two_groups_up_has_stride_four() -> None:
    net = resnet_fabric(width=3, channels=16)
    edge = net.graph.edges[net.graph.index["g2b3.s.block"]]
    assert edge.source == "g0b3"
    conv = net.edge_modules[net.graph.index["g2b3.s.block"]][0]
    assert (conv.in_channels, conv.out_channels, conv.stride) == (16, 64, (4, 4))


def test_the_spine_is_a_resnet() -> None:
    net = randomise(resnet_fabric(width=2, channels=4, input_shape=(3, 8, 8)), 0).eval()
    assert list(net.named) == ["resnet-14"]

    def resnet(x: Tensor) -> Tensor:
        h = net.stem(x)
        for group, block in itertools.product(range(3), (1, 2)):
            residual, skip = (
                net.edge_modules[net.graph.index[f"g{group}b{block}.spine.{part}"]](h) for part in ("block", "skip")
            )
            h = F.relu(residual + skip)
        return net.head[-1](h.mean((2, 3)))

    x = inputs(net, 2)
    torch.testing.assert_close(net(x, net.architecture("resnet-14")), resnet(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "depth"), [(3, 20), (5, 32)])
def test_the_fabric_of_the_right_width_names_its_resnet(width: int, depth: int) -> None:
    net = resnet_fabric(width, channels=1)
    assert net.architecture(f"resnet-{depth}").connected
    with pytest.raises(UserError, match=f"resnet-{depth}"):
        net.architecture("resnet-999")


def test_convolutions_carry_a_bias_that_starts_at_zero() -> None:
    net = resnet_fabric(width=1, channels=2)
    convs = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert convs
    assert all(conv.bias is not None and not conv.bias.any() for conv in convs)
