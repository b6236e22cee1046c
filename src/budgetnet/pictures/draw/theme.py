"""Colours and type of the pictures, light and dark, as a style sheet for browsers and rasterisers alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from budgetnet.errors import UserError

FONT = "Inter, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

RAMP = ("#4666d2", "#1f93b8", "#2a9d72", "#86a32b", "#d9941a", "#cf4d2f")
"""Ticks of a schedule, first to last: similar brightness, so that they show on light and on dark."""


@dataclass(frozen=True)
class Theme:
    """The colours of one appearance. Kinds without an entry are drawn as a plain edge."""

    page: str
    ink: str
    muted: str
    faint: str
    node: str
    node_dead: str
    plain: str
    kinds: tuple[tuple[str, str], ...]


LIGHT = Theme(
    page="#ffffff",
    ink="#1c2430",
    muted="#5b6675",
    faint="#d6dce4",
    node="#ffffff",
    node_dead="#f4f6f8",
    plain="#2b63b8",
    kinds=(("block", "#2b63b8"), ("skip", "#c4640a"), ("same", "#2b63b8"), ("down", "#c4640a"), ("up", "#0b8a63")),
)
DARK = Theme(
    page="#14181f",
    ink="#e7ebf0",
    muted="#9aa5b4",
    faint="#3a4452",
    node="#1d232c",
    node_dead="#181d24",
    plain="#6ea8f7",
    kinds=(("block", "#6ea8f7"), ("skip", "#f0a04b"), ("same", "#6ea8f7"), ("down", "#f0a04b"), ("up", "#46c79b")),
)
THEMES = ("auto", "light", "dark")


def stylesheet(theme: str = "auto") -> str:
    """The rules for `theme`; `auto` follows the reader's system."""
    if theme not in THEMES:
        raise UserError(f"theme {theme!r} does not exist; use {', '.join(THEMES)}")
    if theme == "auto":
        return f"{_SHARED}{_colours(LIGHT)}@media (prefers-color-scheme: dark){{{_colours(DARK)}}}"
    return _SHARED + _colours(DARK if theme == "dark" else LIGHT)


def ramp(share: float, stops: Sequence[str] = RAMP) -> str:
    """The colour at a share (0 to 1) of the ramp."""
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    left = min(int(place), len(stops) - 2)
    weight = place - left
    parts = [
        round(int(stops[left][i : i + 2], 16) * (1 - weight) + int(stops[left + 1][i : i + 2], 16) * weight)
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)


_SHARED = (
    f".bn{{font-family:{FONT};font-size:12px}}"
    ".bn .line{fill:none;stroke-linecap:round}"
    ".bn .hit{fill:none;stroke:#000;stroke-opacity:0;stroke-width:11;pointer-events:stroke}"
    ".bn .alone .line{stroke-dasharray:6 5}"
    ".bn .label{font-size:10.5px;text-anchor:middle;pointer-events:none}"
    ".bn .title{font-size:17px;font-weight:600}"
    ".bn .arrow{fill:none;stroke-width:1.5}"
)


def _colours(theme: Theme) -> str:
    rules = [
        f".bn .page{{fill:{theme.page}}}",
        f".bn .line{{stroke:{theme.plain}}}.bn .head{{fill:{theme.plain}}}",
        *(f".bn .{k} .line{{stroke:{c}}}.bn .{k} .head{{fill:{c}}}" for k, c in theme.kinds),
        f".bn .dropped .line{{stroke:{theme.faint}}}.bn .dropped .head{{fill:{theme.faint}}}",
        f".bn .node rect{{fill:{theme.node};stroke:{theme.ink};stroke-width:1.4}}",
        f".bn .node.dead rect{{fill:{theme.node_dead};stroke:{theme.faint}}}",
        f".bn .title,.bn .label{{fill:{theme.ink}}}.bn .node.dead .label{{fill:{theme.muted}}}",
        f".bn .caption{{fill:{theme.muted}}}.bn .arrow{{stroke:{theme.muted}}}.bn .tip{{fill:{theme.muted}}}",
    ]
    return "".join(rules)
