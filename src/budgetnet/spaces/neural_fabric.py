"""The convolutional neural fabric (CNF): a grid of columns and scales, every neighbouring pair connected."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from budgetnet.errors import UserError
from budgetnet.network.graph import Edge, Graph
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import blocks

TASKS = ("classification", "segmentation")
Place = tuple[int, int]


def neural_fabric(
    width: int = 8,
    scales: int = 6,
    filters: int = 128,
    task: str = "classification",
    classes: int = 10,
    input_shape: tuple[int, ...] = (3, 32, 32),
) -> SuperNetwork:
    """Convolutional neural fabric (paper, figure 1b): `width` columns × `scales` scales with `filters` filters each.

    The head is a 1×1 convolution in the last column, at the coarsest (classification) or finest scale (segmentation).

    Args:
        width: Columns.
        scales: Scales; each halves the side of the one before.
        filters: Channels of every node.
        task: `classification` or `segmentation`.
        classes: Classes of the output.
        input_shape: Of one example, channels first.

    Returns:
        The super network.
    """
    _check(width, scales, filters, classes, task)
    sides = blocks.scales(input_shape, scales, "scales")
    count = 3 * width * scales
    blocks.affordable(count, count * 9 * filters**2 + (9 * input_shape[0] + classes) * filters)
    pairs = list(_connections(width, scales, task))
    edges = [Edge(f"{_node(a)}-{_node(b)}", _node(a), _node(b)) for a, b in pairs]
    modules = {
        edge.name: blocks.fabric_edge(filters, sides[a[1]], sides[b[1]])
        for edge, (a, b) in zip(edges, pairs, strict=True)
    }
    head: list[nn.Module] = [nn.Conv2d(filters, classes, 1)]
    if task == "classification":
        head += [nn.Flatten()] if sides[-1] == (1, 1) else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return SuperNetwork(
        Graph(edges),
        modules,
        input_shape=input_shape,
        stem=blocks.stem(input_shape[0], filters),
        head=nn.Sequential(*head),
        activation=nn.ReLU(),
        memory_format=torch.channels_last,
        name=f"neural-fabric:width={width},scales={scales},filters={filters},task={task}",
    )


def _check(width: int, scales: int, filters: int, classes: int, task: str) -> None:
    blocks.positive(width=width, scales=scales, filters=filters, classes=classes)
    if task not in TASKS:
        raise UserError(f"task={task} is not a task of the neural fabric; use {' or '.join(TASKS)}")
    if task == "segmentation" and width < 2:
        raise UserError(f"width={width} has no way back to the finest scale, which segmentation needs; use 2 or more")
    if scales < 2:
        raise UserError(f"scales={scales} leaves nothing to connect; use 2 or more")


def _node(place: Place) -> str:
    return f"c{place[0]}s{place[1]}"


def _connections(width: int, scales: int, task: str) -> Iterator[tuple[Place, Place]]:
    """Pairs of (column, scale) in order of insertion: first column, columns, last column."""
    for scale in range(scales - 1):
        yield (0, scale), (0, scale + 1)
    for column in range(1, width):
        for scale in range(scales):
            for source in range(max(scale - 1, 0), min(scale + 1, scales - 1) + 1):
                yield (column - 1, source), (column, scale)
    if width == 1:
        return
    last = width - 1
    for scale in range(scales - 1):
        if task == "classification":
            yield (last, scale), (last, scale + 1)
        else:
            yield (last, scales - 1 - scale), (last, scales - 2 - scale)
