"""What the templates show, as plain values: a view of each run and, for several, their comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from budgetnet.costs import COSTS
from budgetnet.costs.units import show
from budgetnet.pictures.report.anatomy import Anatomy, anatomy
from budgetnet.pictures.report.answer import Answer, answer
from budgetnet.pictures.report.breakdown import Breakdown, breakdown_charts, breakdowns
from budgetnet.pictures.report.charts import Chart
from budgetnet.pictures.report.dynamics import dynamics
from budgetnet.pictures.report.gallery import Gallery, gallery
from budgetnet.pictures.report.limits import Limit, limits, meters
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.numbers import score_text
from budgetnet.pictures.report.planes import archive_planes, runs_planes
from budgetnet.pictures.report.series import timeline
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import MetricDescription, Summary

MOST_FRAMES = 300
"""Positions of all sliders of a page together: their probabilities are its largest part after the chart library."""


@dataclass(frozen=True)
class Placed:
    """A chart with the id of its place on the page."""

    id: str
    chart: Chart


@dataclass(frozen=True)
class Comparison:
    """A trained network before and after: rows of name, before and after; what was removed; how it was chosen."""

    rows: list[tuple[str, str, str]]
    removed: list[str]
    notes: list[str]


@dataclass(frozen=True)
class RunView:
    """One run."""

    id: str
    name: str
    path: str
    answer: Answer
    proofs: list[tuple[str, str]]
    before: Comparison | None
    gallery: Gallery | None
    anatomy: Anatomy | None
    undrawn: str
    planes: list[Placed]
    dynamics: list[Placed]
    parts: list[Placed]
    breakdowns: list[Breakdown]
    settings: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    command: str

    @property
    def charts(self) -> list[Placed]:
        """All charts of this run."""
        return [*self.planes, *self.dynamics, *self.parts]


@dataclass(frozen=True)
class Line:
    """A row of the comparison."""

    name: str
    id: str
    kind: str
    state: str
    mood: str
    budgets: str
    cost: str
    validation: str
    test: str
    params: str


@dataclass(frozen=True)
class View:
    """A page."""

    title: str
    runs: list[RunView]
    lines: list[Line] = field(default_factory=list)
    cost: str = ""
    comparison: list[Placed] = field(default_factory=list)

    @property
    def charts(self) -> list[Placed]:
        """All charts of the page."""
        return [*self.comparison, *(chart for run in self.runs for chart in run.charts)]

    @property
    def sliders(self) -> dict[str, Any]:
        """The frames of each run's picture."""
        return {run.id: run.anatomy.frames for run in self.runs if run.anatomy}


def make_view(runs: Sequence[RunFiles], networks: Networks) -> View:
    """The view of one run, or of several side by side."""
    names = _distinct_names(runs)
    frames = max(MOST_FRAMES // len(runs), 12)
    views = [
        _run_view(run, f"run-{i}", name, networks, frames)
        for i, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    if len(runs) == 1:
        return View(f"{names[0]} – budgetnet", views)
    cost, unit = _common_cost(runs)
    planes = _place("comparison-plane", runs_planes(runs, names, cost, unit))
    lines = [_line(run, view, cost, unit) for run, view in zip(runs, views, strict=True)]
    title = f"{len(runs)} runs – budgetnet"
    return View(title, views, lines, cost, planes)


def _run_view(run: RunFiles, id: str, name: str, networks: Networks, frames: int) -> RunView:
    net, undrawn = networks.of(run)
    time = timeline(run.records)
    found = limits(run, net)
    costs = meters(found, net, networks.meters_of(run)) if net else {}
    body = anatomy(run, time.frames(len(net.graph.edges), frames), net, costs) if net else None
    kept = body.architecture if body and body.architecture and body.architecture.connected else None
    return RunView(
        id,
        name,
        str(run.path),
        answer(run, found),
        [(limit.cost, _how(limit)) for limit in found if limit.how],
        _comparison(run.summary),
        gallery(run),
        body,
        undrawn,
        _place(f"{id}-plane", archive_planes(run, found, net, costs)),
        _place(f"{id}-dynamics", dynamics(time, found, run.data.metric if run.data else MetricDescription())),
        _place(f"{id}-parts", breakdown_charts(kept, costs) if kept else []),
        list(breakdowns(kept, costs, body.probabilities if body else None)) if kept else [],
        [(str(key), _text(value)) for key, value in run.settings.items() if value not in (None, [])],
        [(str(k), _text(v)) for part in (run.origin.versions, run.origin.machine) for k, v in part.items()],
        run.origin.command,
    )


def _comparison(summary: Summary | None) -> Comparison | None:
    if summary is None or summary.before is None:
        return None
    before = summary.before
    return Comparison(before.compared(summary), list(before.removed), before.notes())


def _place(prefix: str, charts: Any) -> list[Placed]:
    return [Placed(f"{prefix}-{i}", chart) for i, chart in enumerate(charts)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False)


def _how(limit: Limit) -> str:
    return ", ".join(f"{key} {_text(value)}" for key, value in limit.how.items())


def _distinct_names(runs: Sequence[RunFiles]) -> list[str]:
    """Folder names, with the parent's where two are equal."""
    names = [run.name for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.path.resolve().parent.name}/{name}"
        for run, name in zip(runs, names, strict=True)
    ]


def _common_cost(runs: Sequence[RunFiles]) -> tuple[str, str]:
    """The first budget's cost if every finished run knows it, else multiply-adds."""
    summaries = [run.summary for run in runs if run.summary]
    for summary in summaries:
        for budget in summary.budgets:
            if all(other.cost(budget.cost) is not None for other in summaries):
                return budget.cost, budget.unit
    return "macs", COSTS["macs"].unit


def _line(run: RunFiles, view: RunView, cost: str, unit: str) -> Line:
    summary = run.summary
    price = summary.cost(cost) if summary else None
    asked = run.settings.get("budgets")
    return Line(
        view.name,
        view.id,
        "search" if run.searched else "baseline",
        view.answer.state,
        view.answer.mood,
        ", ".join(map(str, asked)) if isinstance(asked, list) else "",
        "–" if price is None else show(price, unit),
        score_text(summary.metric, summary.validation_score) if summary else "–",
        score_text(summary.metric, summary.test_score) if summary else "–",
        show(summary.params, "params") if summary else "–",
    )
