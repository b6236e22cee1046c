"""What was kept: the picture with its slider through the search, what its numbers mean, and widths layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from budgetnet.costs import Meter
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.pictures.draw import Picture, html_key, size, svg
from budgetnet.pictures.outline import Outline
from budgetnet.pictures.report.numbers import quantity
from budgetnet.pictures.report.series import Row
from budgetnet.records.folder import RunFiles

READING = {
    "resnet-fabric": "Each row is a group: blocks of one resolution and width, which the text on the left says. The "
    "numbers in the circles count the blocks of a group; rows alternate in direction, so that blocks that may be "
    "joined face each other.",
    "neural-fabric": "Columns go from input to output, rows are scales from fine to coarse; a circle has the numbers "
    "of its column and its scale.",
}
OTHERS = "Circles are values between layers, named after where they arise; lines are layers or branches of them."
BUNDLED = " A band is a layer whose channels or heads are kept in part: as many of its lines are strong as are kept."


@dataclass(frozen=True)
class Drawing:
    """SVG text, its width where there is room, in pixels, and the key: small pictures with their texts."""

    svg: Markup
    width: int
    key: list[tuple[Markup, str]]
    caption: str = ""


@dataclass(frozen=True)
class Width:
    """A layer that can be kept in part: what is kept of it, and of what."""

    name: str
    kept: int
    total: int
    what: str

    @property
    def share(self) -> float:
        """The share that is kept, in percent."""
        return 100 * self.kept / self.total if self.total else 0.0


@dataclass(frozen=True)
class Anatomy:
    """What is drawn, and the caption; `frames` is what the page's script needs to redraw it for another epoch."""

    picture: Drawing
    caption: str
    reading: str
    frames: Mapping[str, Any]
    architecture: Architecture | None
    probabilities: list[float] | None
    schedules: list[Drawing] = field(default_factory=list)
    widths: list[Width] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)


def anatomy(run: RunFiles, shots: list[Row], net: Outline, meters: Mapping[str, Meter]) -> Anatomy:
    """The found architecture, or as much as the run knows so far."""
    probabilities = [p / 1000 for p in shots[-1]["p"]] if shots else None
    found = _found(run, net)
    cost = next((meter for name, meter in meters.items() if not name.startswith("steps")), None)
    cost = cost or next(iter(meters.values()), None)
    unscheduled = None if cost is not None and cost.name.startswith("steps") else cost
    picture = Picture(net, found, probabilities, unscheduled)
    reading = READING.get(net.name.partition(":")[0], OTHERS) + (BUNDLED if net.graph.bundles else "")
    return Anatomy(
        _draw(picture),
        _caption(picture, meters),
        reading,
        {"shots": shots, "found": _gates(found), "nodes": len(net.graph.nodes)},
        found,
        probabilities,
        list(_schedules(net, found, meters)),
        list(_widths(net, found)) if found else [],
        _dropped(net, found) if found else [],
    )


def _found(run: RunFiles, net: Outline) -> Architecture | None:
    if not run.architecture:
        return None
    try:
        return Architecture.from_json(net.graph, run.architecture)
    except UserError:
        return None


def _gates(architecture: Architecture | None) -> list[int] | None:
    return [int(gate) for gate in architecture.gates().tolist()] if architecture else None


def _caption(picture: Picture, meters: Mapping[str, Meter]) -> str:
    edges = len(picture.net.graph.edges)
    costs = ", ".join(quantity(meter(picture.shown), meter.unit) for meter in meters.values()) if picture.live else ""
    state = "The found architecture" if picture.architecture else "The most probable architecture so far"
    if not picture.architecture and picture.probabilities is None:
        state = "The whole super network, before the search"
    return f"{state}: {len(picture.live)} of {edges} edges of {picture.net.name}{', ' + costs if costs else ''}."


def _draw(picture: Picture, caption: str = "") -> Drawing:
    width = round(size(picture, key=False)[0])
    return Drawing(Markup(svg(picture, style=False)), width, html_key(picture), caption)  # draw escapes


def _schedules(net: Outline, found: Architecture | None, meters: Mapping[str, Meter]) -> Iterator[Drawing]:
    for name, meter in meters.items():
        picture = Picture(net, found, None, meter)
        if found is not None and picture.ticks is not None:
            yield _draw(picture, f"The same architecture by {name}: the colour is the tick in which a part starts.")


def _widths(net: Outline, found: Architecture) -> Iterator[Width]:
    """Every layer that may be narrowed, in the order of the network."""
    live = found.live().gates().tolist()
    for name, units in net.graph.bundles.items():
        kept, axis = [bool(live[unit]) for unit in units], net.widths.get(name)
        if axis is None or axis.units != len(units):
            yield Width(name, sum(kept), len(kept), "units")
        else:
            what = "channels" if axis.channels == 1 else f"heads or groups of {axis.channels} channels"
            yield Width(name, axis.width(kept), axis.blocks, what)


def _dropped(net: Outline, found: Architecture) -> list[str]:
    """Whole edges that may be dropped and were."""
    live = found.live().kept
    return [edge.name for edge in net.graph.edges if edge.bundle is None and edge.name not in live]
