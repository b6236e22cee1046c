"""The ResNet fabric: a ResNet's spine with extra connections between mirrored blocks of neighbouring groups."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from budgetnet.network.graph import Architecture, Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import blocks


def resnet_fabric(
    width: int = 3,
    channels: int = 16,
    groups: int = 3,
    classes: int = 10,
    input_shape: tuple[int, ...] = (3, 32, 32),
) -> SuperNetwork:
    """ResNet fabric (paper, figure 1a): `width` blocks in each of `groups` groups; contains a ResNet as its spine.

    Every connection is two parallel edges, `block` (two convolutions) and `skip` (identity or projection).

    Args:
        width: Blocks of a group on the spine.
        channels: Of the first group; each group has twice those of the one before, at half its side.
        groups: Groups of blocks.
        classes: Classes of the output.
        input_shape: Of one example, channels first.

    Returns:
        The super network.
    """
    blocks.positive(width=width, channels=channels, groups=groups, classes=classes)
    blocks.scales(input_shape, groups, "groups")
    widest = channels * 2 ** (groups - 1)
    blocks.affordable(8 * width * groups, 18 * 4 * width * widest**2 + input_shape[0] * 9 * channels + widest * classes)
    edges: list[Edge] = []
    modules: dict[str, nn.Module] = {}
    for group in range(groups):
        for block in range(1, width + 1):
            for kind, (source_group, source_block) in _connections(group, block, width):
                factor = 2 ** (group - source_group)
                inputs, outputs = channels * 2**source_group, channels * 2**group
                for part, build in (("block", blocks.residual_block), ("skip", blocks.shortcut)):
                    name = f"{_node(group, block)}.{kind}.{part}"
                    edges.append(Edge(name, _node(source_group, source_block), _node(group, block)))
                    modules[name] = build(inputs, outputs, factor)
    graph = Graph(edges)
    spine = frozenset(name for name in modules if ".spine." in name)
    return SuperNetwork(
        graph,
        modules,
        input_shape=input_shape,
        stem=blocks.stem(input_shape[0], channels),
        head=nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels * 2 ** (groups - 1), classes)),
        activation=nn.ReLU(),
        memory_format=torch.channels_last,
        name=f"resnet-fabric:width={width},channels={channels},groups={groups}",
        named={f"resnet-{2 * groups * width + 2}": Architecture(graph, spine)},
    )


def _node(group: int, block: int) -> str:
    return f"g{group}b{block}"


def _connections(group: int, block: int, width: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """The inputs of h[group][block]: the spine, then s, l, r from the mirrored blocks of the previous group."""
    yield "spine", _state(group, block - 1, width)
    if group == 0:
        return
    mirror = width - block
    yield "s", _state(group - 1, mirror, width)
    if block >= 2:
        yield "l", _state(group - 1, mirror + 1, width)
    if block <= width - 1:
        yield "r", _state(group - 1, mirror - 1, width)


def _state(group: int, block: int, width: int) -> tuple[int, int]:
    """h[g][0] is h[g−1][w], the end of the previous group; only the stem is h[0][0]."""
    return (group - 1, width) if block == 0 and group > 0 else (group, block)
