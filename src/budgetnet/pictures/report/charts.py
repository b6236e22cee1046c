"""Charts as Vega-Lite specifications, made with Altair; `static` turns one into a picture that needs no script."""

from __future__ import annotations

import base64
from collections import Counter
from dataclasses import dataclass
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
HOVER = "hover"
"""The layer that answers the pointer and shows nothing: of no use to a still picture."""

PRECISE = {"~g": ".4~g", "~s": ".4~s", "~%": ".2%"}
"""The format of a tooltip for that of an axis."""

LINES_HEIGHT = 200
PLANE_HEIGHT = 350
FEW = 12
"""A line of fewer points shows them."""

TOP_PADDING = 18
"""Room for the names above a plot."""


@dataclass(frozen=True)
class Chart:
    """A chart with what a page says about it."""

    title: str
    caption: str
    spec: Spec
    wide: bool = False


def altair() -> Any:
    """The charting library; it is an extra."""
    try:
        import altair
    except ImportError:
        raise UserError(
            "a report needs a package that is not installed; run: pip install 'budgetnet[report]'"
        ) from None
    return altair


def lines(
    rows: list[Row],
    phases: list[Row],
    what: str,
    number_format: str = "~g",
    from_zero: bool = True,
    background: list[Row] | None = None,
) -> Spec:
    """Values over the epochs, one line per series, with the phases marked; `background` is a fainter line behind."""
    alt = altair()
    end = _last_phase_end(phases, max((row["epoch"] for row in [*rows, *(background or [])]), default=0))
    phases = [phase for phase in phases if phase["start"] < end]
    axis = alt.Axis(tickCount=6, grid=False, format="~f", labelFlush=False)
    x = alt.X("epoch:Q", title="epoch", scale=alt.Scale(domain=[0, end or 1]), axis=axis)
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=from_zero), axis=alt.Axis(format=number_format, tickCount=5))
    series = list(dict.fromkeys(row["series"] for row in rows))
    colour = alt.Color(
        "series:N", sort=series, title=None, legend=_key(symbolType="stroke") if len(series) > 1 else None
    )
    tips = [
        alt.Tooltip("series:N", title="what"),
        alt.Tooltip("epoch:Q", format=".4~g"),
        alt.Tooltip("phase:N"),
        alt.Tooltip("value:Q", format=PRECISE[number_format], title=what),
    ]
    main = alt.Chart(alt.NamedData("rows")).encode(x=x, y=y, color=colour)
    layers = [*_phase_marks(phases)]
    if background:
        faint = alt.Chart(alt.NamedData("background")).mark_line(strokeWidth=1, opacity=0.45, color=GREY)
        layers.append(faint.encode(x=x, y=y))
    layers.append(main.mark_line())
    points = Counter(row["series"] for row in rows)
    sparse = [row for row in rows if points[row["series"]] < FEW]
    if sparse:
        dots = alt.Chart(alt.NamedData("sparse")).encode(x=x, y=y, color=colour)
        layers.append(dots.mark_point(filled=True, size=40, opacity=1))
    layers.append(main.mark_circle(size=60, opacity=0).encode(tooltip=tips).properties(name=HOVER))
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
    total = phases[-1]["end"]
    roomy = [row for row in phases if (row["end"] - row["start"]) / total > 0.09]
    names = alt.Chart(alt.Data(values=roomy)).mark_text(align="left", baseline="bottom", fontSize=10.5)
    return [rules.encode(x="start:Q"), names.encode(x="start:Q", y=alt.value(-5), text="phase:N")]


def plane(
    points: list[Row],
    front: list[Row],
    marks: list[Row],
    cost: str,
    unit: str,
    metric: MetricDescription,
    tested: bool = False,
) -> Spec:
    """Validation scores against cost. `points` have cost, score, kind and name; `marks` are named costs.

    With `tested`, the score on test data, a text under `test`, is told beside that of a point.
    """
    alt = altair()
    x = alt.X("cost:Q", title=cost, scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(format="~s", tickCount=7))
    axis, tip = ("~%", ".2%") if metric.format.endswith("%") else ("~g", ".4g")
    y = alt.Y("score:Q", title=None, scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(format=axis, tickCount=6))
    kinds = list(dict.fromkeys(row["kind"] for row in points))
    shapes = ["diamond", "circle", "triangle-up", "square", "cross"]
    tips = [
        alt.Tooltip("name:N", title="network"),
        alt.Tooltip("kind:N", title="what"),
        alt.Tooltip("shown:N", title=cost),
        alt.Tooltip("score:Q", format=tip, title=f"validation {metric.label}"),
        *([alt.Tooltip("test:N", title="on test data")] if tested else []),
    ]
    for row in points:
        row["shown"] = quantity(row["cost"], unit)
    dots = alt.Chart(alt.NamedData("points")).mark_point(filled=True)
    dots = dots.encode(
        x=x,
        y=y,
        color=alt.Color("kind:N", sort=kinds, title=None, legend=_key(symbolOpacity=1)),
        shape=alt.Shape("kind:N", sort=kinds, scale=alt.Scale(range=shapes), legend=None),
        size=alt.Size("weight:Q", legend=None, scale=None),
        opacity=alt.Opacity("strength:Q", legend=None, scale=None),
        tooltip=tips,
    )
    edge = alt.Chart(alt.NamedData("front")).mark_line(interpolate="step-after", opacity=0.8, strokeWidth=1.5)
    layers = [*_cost_marks(marks), edge.encode(x=x, y=y), dots]
    return _spec(alt.layer(*layers), PLANE_HEIGHT, points=points, front=front)


def _cost_marks(marks: list[Row]) -> list[Any]:
    """Upright lines: the budget's name stands above the plot, the names of known networks inside."""
    alt = altair()
    layers = []
    for kind, colour, dash in (("budget", BUDGET, [5, 3]), ("network", GREY, [2, 3])):
        rows = [mark for mark in marks if mark["kind"] == kind]
        if rows:
            base = alt.Chart(alt.Data(values=rows)).encode(x="cost:Q")
            layers.append(base.mark_rule(color=colour, strokeDash=dash))
            above = {"align": "center", "baseline": "bottom", "dy": -5}
            inside = {"align": "left", "baseline": "top", "dx": 5, "dy": 4}
            text = base.mark_text(color=colour, fontSize=11, **(above if kind == "budget" else inside))
            layers.append(text.encode(y=alt.value(0), text="name:N"))
    return layers


def bars(rows: list[Row], axis: str, unit: str) -> Spec:
    """Named amounts, in the order given."""
    alt = altair()
    for row in rows:
        row["shown"] = quantity(row["value"], unit)
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=150)),
        x=alt.X("value:Q", title=axis, axis=alt.Axis(format="~s", tickCount=5)),
        tooltip=[alt.Tooltip("name:N", title="part"), alt.Tooltip("shown:N", title=axis)],
    )
    colour = alt.Color("kind:N", title=None, legend=_key())
    return _spec(base.mark_bar(height={"band": 0.7}).encode(color=colour), 60 + 19 * len(rows))


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


def config(theme: Theme) -> Spec:
    """How charts look, light or dark; given to Vega when a chart is shown, so that one specification serves both."""
    palette = [colour for _, colour in theme.kinds[2:]] + ["#8a63d2", "#8a94a3", "#c2477f", "#3f9fb5"]
    text = {"labelColor": theme.muted, "titleColor": theme.muted, "labelFontSize": 11, "titleFontSize": 11}
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {**text, "titleFontWeight": "normal", "domain": False, "ticks": False, "gridColor": theme.faint}
        | {"gridOpacity": 0.7, "labelPadding": 6, "titlePadding": 8},
        "legend": {**text, "labelFontSize": 12, "symbolStrokeWidth": 3, "titlePadding": 4},
        "line": {"strokeWidth": 2, "color": palette[0]},
        "bar": {"color": palette[0]},
        "text": {"color": theme.muted, "font": FONT},
        "range": {"category": palette},
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
