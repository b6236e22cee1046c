"""The figures: pictures of found networks, accuracy against cost, and the dynamics of training."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import write_file
from budgetnet.network.graph import Architecture
from budgetnet.pictures.draw import Picture, save
from budgetnet.pictures.report.charts import altair, lines, static
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.series import timeline
from budgetnet.records.folder import read_run
from budgetnet.reproduce.table import Comparison, kind, searched
from budgetnet.runs.sweep.table import Row

MOMENTS = 10
"""Rows of the table of dynamics."""
CHART_WIDTH, CHART_HEIGHT = 720, 400
PUBLISHED, SELECTED = ("published", "ours"), ("validation", "test")
"""What the shapes of a plane's points tell apart."""
SERIES = (("loss", "training loss"), ("entropy", "entropy, bits per edge"))


def draw_found(runs: Path, names: Iterable[str], out: Path) -> dict[str, Path]:
    """A picture of each run's network under the cost of its budget (ticks if that is steps), relative to `out`."""
    networks = Networks()
    drawn: dict[str, Path] = {}
    for name in names:
        run = read_run(runs / name)
        net, reason = networks.of(run)
        if net is None:
            raise UserError(f"{runs / name} cannot be drawn: {reason}; run it again")
        if run.summary is None or not run.summary.budgets:
            raise UserError(f"{runs / name} has no result that can be read; run it again")
        cost = networks.meter(run, net, run.summary.budgets[0].cost)
        picture = Picture(net, Architecture.from_json(net.graph, run.architecture), None, cost, name)
        drawn[name] = save(picture, out / "pictures" / f"{name}.svg", force=True).relative_to(out)
    return drawn


def draw_plane(comparison: Comparison, out: Path, published: bool) -> Path | None:
    """Accuracy against cost as in the paper's plots; published points only where they belong to the same setting."""
    points: list[dict[str, Any]] = []
    for line in comparison.lines:
        if published and line.published is not None:
            points.append(_point(line.model, "published", line.published.cost, line.published.accuracy))
        if line.ours is not None and line.ours.test is not None:
            points.append(_point(line.model, "ours", line.ours.cost, line.ours.test))
    return _write(_plane(points, comparison.heading, "test accuracy, %", PUBLISHED), out) if points else None


def draw_selection(comparison: Comparison, rows: Sequence[Row], models: Mapping[str, str], out: Path) -> Path | None:
    """Model selection as in the paper's supplement: all searches on validation data, those that were tested on test."""
    points: list[dict[str, Any]] = []
    for model, row in searched(comparison.cost, rows, models):
        for who, part in zip(SELECTED, ("validation", "test"), strict=True):
            if row[part] is not None:
                points.append(_point(model, who, row["value"] / comparison.unit, 100 * row[part]))
    return _write(_plane(points, comparison.heading, "accuracy, %", SELECTED), out) if points else None


def _point(model: str, who: str, cost: float, accuracy: float) -> dict[str, Any]:
    return {"name": model, "kind": kind(model), "who": who, "cost": cost, "accuracy": accuracy}


def _plane(points: list[dict[str, Any]], heading: str, title: str, kinds: tuple[str, str]) -> dict[str, Any]:
    """Costs are spread over two orders of magnitude, hence their logarithm."""
    alt = altair()
    above, models = alt.Legend(orient="top"), list(dict.fromkeys(point["kind"] for point in points))
    shapes = alt.Scale(domain=list(kinds), range=["circle", "diamond"])
    chart = alt.Chart(alt.Data(values=points)).mark_point(size=80, strokeWidth=2)
    chart = chart.encode(
        x=alt.X("cost:Q", title=heading, scale=alt.Scale(type="log", nice=False, padding=16), axis=_axis(7)),
        y=alt.Y("accuracy:Q", title=title, scale=alt.Scale(zero=False, padding=16), axis=_axis(6)),
        color=alt.Color("kind:N", sort=models, title=None, legend=above),
        shape=alt.Shape("who:N", title=None, scale=shapes, legend=above),
    )
    spec: dict[str, Any] = chart.properties(height=CHART_HEIGHT).to_dict(validate=False)
    spec.pop("config", None)
    return spec


def _axis(ticks: int) -> Any:
    return altair().Axis(format="~g", tickCount=ticks)


def dynamics_of(run: Path) -> list[dict[str, Any]]:
    """Loss and entropy over the epochs of a run, from its records."""
    return sorted(timeline(read_run(run).records).lines(SERIES), key=lambda row: row["epoch"])


def last_entropy(run: Path) -> float | None:
    """The entropy of Γ at the end of a search, in bits an edge; None for a fixed network."""
    seen = [record.values["entropy"] for record in read_run(run).records if "entropy" in record.values]
    return seen[-1] if seen else None


def draw_dynamics(runs: Sequence[tuple[str, Path]], out: Path) -> list[Path]:
    """Loss and entropy as two charts, a line for each run; the phases are those of the longest."""
    times = {model: timeline(read_run(path).records) for model, path in runs}
    phases = max((list(time.phases) for time in times.values()), key=len, default=[])
    drawn: list[Path] = []
    for name, label in SERIES:
        rows = [{**row, "series": model} for model, time in times.items() for row in time.lines([(name, label)])]
        if rows:
            drawn.append(_write(lines(rows, phases, label, legend=True), out / f"{name}.svg"))
    return drawn


def dynamics_table(runs: Sequence[tuple[str, Path]]) -> str:
    """Loss and entropy of each run at a few moments, evenly spread over its epochs."""
    text = ["| model | epoch | phase | training loss | entropy, bits per edge |", "| --- | ---: | --- | ---: | ---: |"]
    for model, path in runs:
        rows = dynamics_of(path)
        last = max((row["epoch"] for row in rows), default=0.0)
        for moment in range(1, MOMENTS + 1):
            until = [row for row in rows if row["epoch"] <= last * moment / MOMENTS + 1e-6]
            phase = until[-1]["phase"] if until else ""
            known = {row["series"]: row["value"] for row in until}
            loss, entropy = (known.get(label) for _, label in SERIES)
            text.append(f"| {model} | {last * moment / MOMENTS:.1f} | {phase} | {_digits(loss)} | {_digits(entropy)} |")
    return "\n".join([*text, ""])


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _write(spec: dict[str, Any], out: Path) -> Path:
    """A chart as a file; `static` hands it over as a data URI."""
    content = base64.b64decode(static(spec, CHART_WIDTH).partition(",")[2])
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, content)
    return out
