"""Which layout a super network gets."""

from __future__ import annotations

from collections.abc import Callable

from budgetnet.pictures.draw.fabrics import column_grid, group_rows
from budgetnet.pictures.draw.layers import layers
from budgetnet.pictures.draw.layout import Layout
from budgetnet.pictures.outline import Drawable

LAYOUTS: dict[str, Callable[[Drawable], Layout | None]] = {
    "resnet-fabric": group_rows,
    "neural-fabric": column_grid,
}
"""Natural layouts by the name of the space, its parameters left out; one that does not fit a graph says None."""


def layout(net: Drawable) -> Layout:
    """The natural layout of a known space, layers for any other graph."""
    natural = LAYOUTS.get(net.name.partition(":")[0])
    return (natural(net) if natural else None) or layers(net)
