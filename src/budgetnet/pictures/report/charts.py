"""Charts as Vega-Lite specifications, made with Altair; `static` turns one into a picture that needs no script.

A chart's key is a list beside it, which a page shows as text that wraps; a picture that stands alone asks for its own.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.values import printable
from budgetnet.pictures.draw.output import vl_convert
from budgetnet.pictures.draw.theme import DARK, FONT, LIGHT, Theme
from budgetnet.pictures.report.numbers import quantity
from budgetnet.pictures.report.series import Row
from budgetnet.records.results import MetricDescription

Spec = dict[str, Any]

BUDGET, GREY = "#d1495b", "#8a94a3"
WITHIN, OVER, BASELINE = "within every budget", "over a budget", "a fixed network"
KINDS = {WITHIN: "#2f78d0", OVER: BUDGET, BASELINE: GREY}
"""The colour of each kind of network: what is over a budget is red, everywhere."""
SHAPES = {WITHIN: "circle", OVER: "cross", BASELINE: "square"}
HOVER = "hover"
"""The layer that answers the pointer and shows nothing: of no use to a still picture."""

PRECISE = {"~g": ".4~g", "~s": ".4~s", "~%": ".2%"}
"""The format of a tooltip for that of an axis."""

LINES_HEIGHT = 200
PLANE_HEIGHT = 300
FEW = 12
"""A line of fewer points shows them."""
SPIKE = 3.0
"""A value so many interquartile ranges above the upper quartile is a spike, and cut off."""
LEAST_SPIKY = 8
"""Fewer values have no quartiles to speak of."""

TOP_PADDING = 18
"""Room for the names above a plot."""


@dataclass(frozen=True)
class Chart:
    """A chart with what a page says about it; `key` has the name and the colour (a number of the palette) of lines."""

    title: str
    caption: str
    spec: Spec
    wide: bool = False
    key: list[tuple[str, str]] = field(default_factory=list)


def altair() -> Any:
    """The charting library; it is an extra."""
    try:
        import altair
    except ImportError:
        raise UserError(
            "a report needs a package that is not installed; run: pip install 'budgetnet[report]'"
        ) from None
    return altair


def spike_limit(values: Sequence[float]) -> float | None:
    """Above which values are spikes that would flatten all others; None if there are none."""
    if len(values) < LEAST_SPIKY:
        return None
    low, _, high = quantiles(values, n=4)
    limit = high + SPIKE * max(high - low, 1e-12)
    return limit if max(values) > limit else None


def lines(
    rows: list[Row],
    phases: list[Row],
    what: str,
    number_format: str = "~g",
    from_zero: bool = True,
    background: list[Row] | None = None,
    top: float | None = None,
    legend: bool = False,
) -> Spec:
    """Values over the epochs, one line per series, with the phases marked; `background` is a fainter line behind.

    Values above `top` are cut off. With `legend`, the picture has the key inside.
    """
    alt = altair()
    end = _last_phase_end(phases, max((row["epoch"] for row in [*rows, *(background or [])]), default=0))
    phases = [phase for phase in phases if phase["start"] < end]
    axis = alt.Axis(tickCount=6, grid=False, format="~f", labelFlush=False)
    x = alt.X("epoch:Q", title="epoch", scale=alt.Scale(domain=[0, end or 1]), axis=axis)
    scale = alt.Scale(zero=from_zero) if top is None else alt.Scale(zero=from_zero, domainMax=top)
    y = alt.Y("value:Q", title=None, scale=scale, axis=alt.Axis(format=number_format, tickCount=5))
    series = list(dict.fromkeys(row["series"] for row in rows))
    key = _key(symbolType="stroke") if legend and len(series) > 1 else None
    colour = alt.Color("series:N", sort=series, title=None, legend=key)
    tips = [
        alt.Tooltip("series:N", title="what"),
        alt.Tooltip("epoch:Q", format=".4~g"),
        alt.Tooltip("phase:N"),
        alt.Tooltip("value:Q", format=PRECISE[number_format], title=what),
    ]
    clip = top is not None
    main = alt.Chart(alt.NamedData("rows")).encode(x=x, y=y, color=colour)
    layers = [*_phase_marks(phases)]
    if background:
        faint = alt.Chart(alt.NamedData("background")).mark_line(strokeWidth=1, opacity=0.45, color=GREY, clip=clip)
        layers.append(faint.encode(x=x, y=y))
    layers.append(main.mark_line(clip=clip))
    points = Counter(row["series"] for row in rows)
    sparse = [row for row in rows if points[row["series"]] < FEW]
    if sparse:
        dots = alt.Chart(alt.NamedData("sparse")).encode(x=x, y=y, color=colour)
        layers.append(dots.mark_point(filled=True, size=40, opacity=1, clip=clip))
    layers.append(main.mark_circle(size=60, opacity=0, clip=clip).encode(tooltip=tips).properties(name=HOVER))
    return _spec(alt.layer(*layers), LINES_HEIGHT, rows=rows, sparse=sparse, background=background or [])


def _last_phase_end(phases: list[Row], last: float) -> float:
    """Where the phase ends in which the last value lies: no chart is wider than what it shows."""
    ends = [phase["end"] for phase in phases if phase["end"] >= last - 1e-6]
    return float(min(ends, default=last))


def _key(**options: Any) -> Any:
    return altair().Legend(orient="top", offset=26, **options)


def _phase_marks(phases: list[Row]) -> list[Any]:
    """A thin line where each later phase begins, and the names of all above the chart."""
    if len(phases) < 2:
        return []
    alt = altair()
    rules = alt.Chart(alt.Data(values=phases[1:])).mark_rule(strokeDash=[2, 3], opacity=0.55, color=GREY)
    first, total = phases[0]["start"], phases[-1]["end"]
    roomy = [row for row in phases if (row["end"] - row["start"]) / ((total - first) or 1) > 0.25]
    names = alt.Chart(alt.Data(values=roomy)).mark_text(align="left", baseline="bottom", fontSize=10.5)
    return [rules.encode(x="start:Q"), names.encode(x="start:Q", y=alt.value(-5), text="phase:N")]


def plane(
    points: list[Row],
    front: list[Row],
    budget: float | None,
    cost: str,
    unit: str,
    score: MetricDescription,
    told: str,
    tested: bool = False,
) -> Spec:
    """Scores against cost. `points` have cost, score, kind (of `KINDS`) and name; `budget` is a line.

    `told` says what the score is. With `tested`, the score on test data, a text under `test`, is told beside it.
    """
    alt = altair()
    x = alt.X("cost:Q", title=cost, scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(format="~s", tickCount=5))
    axis, tip = ("~%", ".2%") if score.format.endswith("%") else ("~g", ".4g")
    y = alt.Y("score:Q", title=None, scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(format=axis, tickCount=6))
    kinds = list(dict.fromkeys(row["kind"] for row in points))
    tips = [
        alt.Tooltip("name:N", title="network"),
        alt.Tooltip("kind:N", title="what"),
        alt.Tooltip("shown:N", title=cost),
        alt.Tooltip("score:Q", format=tip, title=told),
        *([alt.Tooltip("test:N", title="on test data")] if tested else []),
    ]
    for row in points:
        row["shown"] = quantity(row["cost"], unit)
    colours = alt.Scale(domain=kinds, range=[KINDS[kind] for kind in kinds])
    shapes = alt.Scale(domain=kinds, range=[SHAPES[kind] for kind in kinds])
    dots = alt.Chart(alt.NamedData("points")).mark_point(filled=True, size=130, opacity=1)
    dots = dots.encode(
        x=x,
        y=y,
        color=alt.Color("kind:N", scale=colours, legend=None),
        shape=alt.Shape("kind:N", scale=shapes, legend=None),
        tooltip=tips,
    )
    edge = alt.Chart(alt.NamedData("front")).mark_line(interpolate="step-after", opacity=0.8, strokeWidth=1.5)
    layers = [*_budget_mark(budget, unit), edge.encode(x=x, y=y), dots]
    return _spec(alt.layer(*layers), PLANE_HEIGHT, points=points, front=front)


def _budget_mark(budget: float | None, unit: str) -> list[Any]:
    """An upright line, its name above the plot."""
    if budget is None:
        return []
    alt = altair()
    row = {"cost": budget, "name": f"budget {quantity(budget, unit)}"}
    base = alt.Chart(alt.Data(values=[row])).encode(x="cost:Q")
    text = base.mark_text(color=BUDGET, fontSize=11, align="right", baseline="bottom", dy=-5, dx=4)
    return [base.mark_rule(color=BUDGET, strokeDash=[5, 3]), text.encode(y=alt.value(0), text="name:N")]


def columns(rows: list[Row], x_title: str, y_title: str, rule: float | None) -> Spec:
    """Amounts at whole numbers, with a line for the most that there can be."""
    alt = altair()
    base = alt.Chart(alt.Data(values=rows)).mark_bar()
    base = base.encode(
        x=alt.X("x:O", title=x_title, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("y:Q", title=y_title, axis=alt.Axis(tickMinStep=1)),
        tooltip=[alt.Tooltip("x:O", title=x_title), alt.Tooltip("y:Q", title=y_title)],
    )
    if rule is None:
        return _spec(base, LINES_HEIGHT)
    limit = alt.Chart(alt.Data(values=[{"y": rule}])).mark_rule(color=BUDGET, strokeDash=[5, 3]).encode(y="y:Q")
    return _spec(alt.layer(base, limit), LINES_HEIGHT)


def _spec(chart: Any, height: int, **rows: list[Row]) -> Spec:
    """The specification; large tables are passed by, since Altair would look at every single value."""
    spec: Spec = chart.properties(width="container", height=height).to_dict(validate=False)
    spec.pop("config", None)
    spec["datasets"] = {**spec.get("datasets", {}), **{name: table for name, table in rows.items() if table}}
    spec = cleaned(spec)
    spec["autosize"] = {"type": "fit", "contains": "padding"}
    spec["padding"] = {"left": 4, "right": 12, "top": TOP_PADDING, "bottom": 4}
    return spec


def cleaned(value: Any) -> Any:
    """A specification without control characters: some of them make the chart library end the process."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: cleaned(item) for key, item in value.items()}
    return [cleaned(item) for item in value] if isinstance(value, list) else value


def palette(theme: Theme) -> list[str]:
    """The colours of series, in their order."""
    return [colour for _, colour in theme.kinds[2:]] + ["#8a63d2", "#8a94a3", "#c2477f", "#3f9fb5"]


def key_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """The key of a chart of lines: names with the class of their colour; empty for a single line."""
    return [(name, f"c{place % len(palette(LIGHT))}") for place, name in enumerate(names)] if len(names) > 1 else []


def key_style() -> str:
    """Style rules for the classes of a key, light and dark."""
    rules = ["".join(f".c{i}{{background:{c}}}" for i, c in enumerate(palette(theme))) for theme in (LIGHT, DARK)]
    kinds = "".join(f".k-{SHAPES[kind]}{{background:{colour}}}" for kind, colour in KINDS.items())
    return f"{rules[0]}{kinds}@media (prefers-color-scheme: dark){{{rules[1]}}}"


def config(theme: Theme) -> Spec:
    """How charts look, light or dark; given to Vega when a chart is shown, so that one specification serves both."""
    colours = palette(theme)
    text = {"labelColor": theme.muted, "titleColor": theme.muted, "labelFontSize": 11, "titleFontSize": 11}
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {**text, "titleFontWeight": "normal", "domain": False, "ticks": False, "gridColor": theme.faint}
        | {"gridOpacity": 0.7, "labelPadding": 6, "titlePadding": 8},
        "legend": {**text, "labelFontSize": 12, "symbolStrokeWidth": 3, "titlePadding": 4},
        "line": {"strokeWidth": 2, "color": colours[0]},
        "bar": {"color": colours[0]},
        "text": {"color": theme.muted, "font": FONT},
        "range": {"category": colours},
    }


def static(spec: Spec, width: int) -> str:
    """The light chart as a data URI for readers without scripts."""
    still = {**cleaned(spec), "width": width}
    if "layer" in spec:
        still["layer"] = [layer for layer in still["layer"] if layer.get("name") != HOVER]
    svg = vl_convert().vegalite_to_svg(still, config=config(LIGHT))
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def configs() -> dict[str, Spec]:
    """Both appearances, for the page's script."""
    return {"light": config(LIGHT), "dark": config(DARK)}
