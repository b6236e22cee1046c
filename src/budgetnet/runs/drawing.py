"""Pictures of super networks and of what was kept of them, for notebooks and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from budgetnet.costs import Meter, bind
from budgetnet.errors import UserError
from budgetnet.naming import own_names
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.outline import Drawable, Outline
from budgetnet.runs.arguments import check_network


@dataclass(frozen=True, eq=False)
class Drawing:
    """A picture of a super network; a notebook shows it.

    Attributes:
        net: The super network, or what the folder of a run says of it.
        architecture: What is kept of it, drawn strong; None for all of it.
        cost: The name of the cost that makes edges wide, or schedules them in colours.
        title: Above the picture; may be empty.
    """

    net: Drawable = field(repr=False)
    architecture: Architecture | None = None
    cost: str = "macs"
    title: str = ""

    @property
    def svg(self) -> str:
        """The picture as one SVG element, every text in it escaped."""
        picture = self._picture()
        from budgetnet.pictures.draw import svg

        return svg(picture)

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Writes the picture.

        Args:
            path: The file; its suffix says the format: .svg, .png or .html.
            force: Whether to replace a file that exists.

        Returns:
            The path.
        """
        picture = self._picture()
        from budgetnet.pictures.draw import save

        return save(picture, Path(path), force=force)

    def _picture(self) -> Any:
        if not drawable():
            raise UserError("a picture needs a package that is not installed; run: pip install 'budgetnet[report]'")
        from budgetnet.pictures.draw import Picture

        return Picture(self.net, self.architecture, None, self._meter(), self.title)

    def _meter(self) -> Meter:
        if not isinstance(self.net, Outline):
            return bind(self.cost, self.net, own=own_names(self.cost))
        if self.cost not in self.net.meters:
            raise UserError(
                f"the folder of the run does not say what an edge costs in {self.cost!r}; it has "
                f"{', '.join(self.net.meters)}"
            )
        return self.net.meters[self.cost]

    def _repr_html_(self) -> str:
        """For notebooks."""
        return f'<div style="overflow:auto">{self.svg}</div>'


def drawable() -> bool:
    """Whether what draws is installed: the extra `report`."""
    return find_spec("markupsafe") is not None


def draw(
    net: SuperNetwork, architecture: Architecture | None = None, *, cost: str = "macs", title: str = ""
) -> Drawing:
    """A picture of a super network, or of what is kept of it; needs the extra `report`.

    Args:
        net: The super network.
        architecture: What is kept, such as `result.architecture`; dropped edges are drawn faint. None keeps all.
        cost: The cost that edges are as wide as; with `steps(4)` the colours are the ticks of the schedule.
        title: Above the picture.

    Returns:
        The drawing, which a notebook shows; `save` writes it as .svg, .png or .html.
    """
    check_network(net)
    return Drawing(
        net, None if architecture is None else net.graph.architecture(net.gate_rows(architecture)[0]), cost, title
    )
