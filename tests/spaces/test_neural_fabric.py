"""The convolutional neural fabric: its grid written out again from the definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from budgetnet.spaces import neural_fabric
from tests.random_graphs import inputs


def expected_edges(width: int, scales: int, task: str) -> list[tuple[str, str]]:
    """(source, target) in order of insertion."""
    found = [(f"c0s{s}", f"c0s{s + 1}") for s in range(scales - 1)]
    for column in range(1, width):
        for scale in range(scales):
            sources = [s for s in (scale - 1, scale, scale + 1) if 0 <= s < scales]
            found += [(f"c{column - 1}s{s}", f"c{column}s{scale}") for s in sources]
    last = f"c{width - 1}s"
    if width > 1 and task == "classification":
        found += [(f"{last}{s}", f"{last}{s + 1}") for s in range(scales - 1)]
    if width > 1 and task == "segmentation":
        found += [(f"{last}{s}", f"{last}{s - 1}") for s in range(scales - 1, 0, -1)]
    return found


@pytest.mark.parametrize("task", ["classification", "segmentation"])
@pytest.mark.parametrize(("width", "scales"), [(1, 2), (1, 6), (2, 2), (2, 4), (3, 4), (4, 3)])
def test_the_grid_is_connected_as_defined(width: int, scales: int, task: str) -> None:
    if task == "segmentation" and width == 1:
        width = 2
    net = neural_fabric(width, scales, 2, task)
    assert [(edge.source, edge.target) for edge in net.graph.edges] == expected_edges(width, scales, task)
    assert net.graph.source == "c0s0"
    assert net.graph.sink == f"c{width - 1}s{scales - 1 if task == 'classification' else 0}"


@pytest.mark.parametrize("side", [32, 20, 13])
def test_scales_halve_to_the_ceiling_and_upsampling_goes_to_the_target(side: int) -> None:
    net = neural_fabric(3, 4, 2, "segmentation", 5, (1, side, side + 2))
    for node, shape in zip(net.graph.nodes, net.shapes.nodes, strict=True):
        factor = 2 ** int(node.partition("s")[2])
        assert shape == (2, -(-side // factor), -(-(side + 2) // factor))
    assert net.shapes.output == (5, side, side + 2)


def test_narrow_images_go_as_far_as_their_longer_side() -> None:
    net = neural_fabric(2, 3, 2, "segmentation", 2, (3, 1, 8))
    assert net(inputs(net, 2)).shape == (2, 2, 1, 8)


def test_edges_have_no_activation_and_nodes_do() -> None:
    net = neural_fabric(2, 3, 2, input_shape=(3, 8, 8))
    assert not any(isinstance(module, nn.ReLU) for edge in net.edge_modules for module in edge.modules())
    assert [type(a) for a in net.activations] == [nn.Identity] + [nn.ReLU] * (len(net.graph.nodes) - 1)


def test_the_head_is_a_convolution_at_the_corner_and_logits_are_a_vector() -> None:
    one_pixel = neural_fabric(2, 6, 4, classes=7)
    assert [type(m) for m in one_pixel.head] == [nn.Conv2d, nn.Flatten]
    wider = neural_fabric(2, 2, 4, classes=7)
    assert wider.shapes.nodes[-1] == (4, 16, 16)
    assert wider.shapes.output == one_pixel.shapes.output == (7,)


def test_upsampling_repeats_neighbours() -> None:
    net = neural_fabric(2, 2, 1, input_shape=(1, 4, 4))
    up = net.edge_modules[net.graph.index["c0s1-c1s0"]]
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    assert torch.equal(up[0](x), x.repeat_interleave(2, 2).repeat_interleave(2, 3))
