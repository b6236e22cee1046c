"""The architecture of a run: its picture, and the frames of the slider through the epochs of the search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from budgetnet.costs import Meter
from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.draw import Picture, size, svg
from budgetnet.pictures.report.numbers import quantity
from budgetnet.pictures.report.series import Row
from budgetnet.records.folder import RunFiles


@dataclass(frozen=True)
class Drawing:
    """SVG text, and its width where there is room, in pixels."""

    svg: Markup
    width: int
    caption: str = ""


@dataclass(frozen=True)
class Anatomy:
    """What is drawn, and the caption; `frames` is what the page's script needs to redraw it for another epoch."""

    picture: Drawing
    caption: str
    frames: Mapping[str, Any]
    architecture: Architecture | None
    probabilities: list[float] | None
    schedules: list[Drawing] = field(default_factory=list)


def anatomy(run: RunFiles, shots: list[Row], net: SuperNetwork, meters: Mapping[str, Meter]) -> Anatomy:
    """The found architecture, or as much as the run knows so far."""
    probabilities = [p / 1000 for p in shots[-1]["p"]] if shots else None
    found = _found(run, net)
    cost = next((meter for name, meter in meters.items() if not name.startswith("steps")), None)
    cost = cost or next(iter(meters.values()), None)
    unscheduled = None if cost is not None and cost.name.startswith("steps") else cost
    picture = Picture(net, found, probabilities, unscheduled)
    return Anatomy(
        _draw(picture),
        _caption(picture, run, meters),
        {"shots": shots, "found": _gates(found), "nodes": len(net.graph.nodes)},
        found,
        probabilities,
        list(_schedules(net, found, meters)),
    )


def _found(run: RunFiles, net: SuperNetwork) -> Architecture | None:
    if not run.architecture:
        return None
    try:
        return Architecture.from_json(net.graph, run.architecture)
    except UserError:
        return None


def _gates(architecture: Architecture | None) -> list[int] | None:
    return [int(gate) for gate in architecture.gates().tolist()] if architecture else None


def _caption(picture: Picture, run: RunFiles, meters: Mapping[str, Meter]) -> str:
    edges = len(picture.net.graph.edges)
    costs = ", ".join(quantity(meter(picture.shown), meter.unit) for meter in meters.values()) if picture.live else ""
    state = "The found architecture" if picture.architecture else "The most probable architecture so far"
    if not picture.architecture and picture.probabilities is None:
        state = "The whole super network, before the search"
    return f"{state}: {len(picture.live)} of {edges} edges of {picture.net.name}{', ' + costs if costs else ''}."


def _draw(picture: Picture, caption: str = "") -> Drawing:
    return Drawing(Markup(svg(picture, style=False)), round(size(picture)[0]), caption)  # draw escapes


def _schedules(net: SuperNetwork, found: Architecture | None, meters: Mapping[str, Meter]) -> Iterator[Drawing]:
    for name, meter in meters.items():
        picture = Picture(net, found, None, meter)
        if found is not None and picture.ticks is not None:
            yield _draw(picture, f"The same architecture by {name}: the colour is the tick in which a part starts.")
