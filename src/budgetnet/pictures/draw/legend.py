"""The key below a picture: what colours, dashes, widths and opacity mean."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from budgetnet.pictures.draw.picture import Picture
from budgetnet.pictures.draw.text import escaped
from budgetnet.pictures.draw.theme import ramp

LINE_HEIGHT = 24.0
SWATCH = 30.0

Entry = tuple[str, str]
"""A swatch (SVG, at the origin) and its text."""


def legend(picture: Picture, width: float) -> tuple[str, float]:
    """The key as SVG, wrapped to a width, and its height."""
    x, y, parts = 14.0, 22.0, []
    for swatch, text in entries(picture):
        room = SWATCH + 8 + 6.3 * len(text) + 22
        if x > 14 and x + room > width:
            x, y = 14.0, y + LINE_HEIGHT
        parts.append(
            f'<g transform="translate({x:g} {y:g})">{swatch}'
            f'<text class="caption" x="{SWATCH + 8:g}" y="4">{escaped(text)}</text></g>'
        )
        x += room
    return "".join(parts), y + 18


def entries(picture: Picture) -> Iterator[Entry]:
    """What has a meaning in a picture."""
    scheduled = picture.ticks is not None
    if picture.ticks is not None:
        yield _scale(), f"tick 1 to {picture.ticks.total}"
    else:
        for kind, meaning in picture.layout.kinds.items():
            if any(route.kind == kind for route in picture.layout.routes):
                yield _line(kind), meaning
    if "skip" in picture.layout.kinds and picture.architecture is not None:
        yield _line("alone" if scheduled else "skip alone"), "skip kept, block dropped"
    if len(picture.live) < len(picture.net.graph.edges):
        yield _line("dropped"), "dropped"
    if picture.costs is not None and picture.cost is not None and not scheduled:
        yield (
            '<path class="line" d="M0,-3H30" stroke-width="1.3"/><path class="line" d="M0,4H30" stroke-width="5"/>',
            (f"width: {picture.cost.name}"),
        )
    if picture.probabilities is not None:
        yield (
            (
                '<g><path class="line" d="M0,0H10" stroke-width="4" opacity=".2"/><path class="line" d="M10,0H20" '
                'stroke-width="4" opacity=".55"/><path class="line" d="M20,0H30" stroke-width="4"/></g>'
            ),
            "opacity: probability",
        )


def html_key(picture: Picture) -> list[tuple[Markup, str]]:
    """The key for a page, whose text wraps: a small picture and a text for each entry."""
    box = f'<svg class="bn" viewBox="0 -8 {SWATCH:g} 16" width="{SWATCH:g}" height="16" aria-hidden="true">'
    return [(Markup(f"{box}{swatch}</svg>"), text) for swatch, text in entries(picture)]  # swatches are ours


def _line(classes: str) -> str:
    return f'<g class="{classes}"><path class="line" d="M0,0H{SWATCH:g}" stroke-width="3"/></g>'


def _scale() -> str:
    steps = 6
    width = SWATCH / steps
    return "".join(
        f'<rect x="{i * width:g}" y="-5" width="{width:g}" height="10" fill="{ramp(i / (steps - 1))}"/>'
        for i in range(steps)
    )
