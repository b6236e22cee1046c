"""What the templates show, as plain values: a view of each run and, for several, their comparison."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from budgetnet.costs import COSTS
from budgetnet.costs.units import show
from budgetnet.pictures.report.anatomy import Anatomy, anatomy
from budgetnet.pictures.report.answer import Answer, answer
from budgetnet.pictures.report.breakdown import Breakdown, breakdowns, schedule_charts
from budgetnet.pictures.report.charts import Chart
from budgetnet.pictures.report.dynamics import dynamics, entropy_told
from budgetnet.pictures.report.gallery import Gallery, gallery
from budgetnet.pictures.report.limits import limits, meters
from budgetnet.pictures.report.met import Met, met
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.numbers import duration, score_text
from budgetnet.pictures.report.planes import Spread, race_planes, runs_planes, spreads
from budgetnet.pictures.report.quality import Quality, quality
from budgetnet.pictures.report.race import Table, decided, outcome, table
from budgetnet.pictures.report.series import timeline
from budgetnet.pictures.report.usage import Block, usage
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import ACCURACY

MOST_FRAMES = 300
"""Positions of all sliders of a page together: their probabilities are its largest part after the chart library."""


@dataclass(frozen=True)
class Placed:
    """A chart with the id of its place on the page."""

    id: str
    chart: Chart


@dataclass(frozen=True)
class RunView:
    """One run, in the order of a reader's questions."""

    id: str
    name: str
    path: str
    answer: Answer
    met: Met
    quality: Quality | None
    gallery: Gallery | None
    anatomy: Anatomy | None
    undrawn: str
    breakdowns: list[Breakdown]
    schedules: list[Placed]
    planes: list[Placed]
    more: str
    decided: str
    entropy: str
    race: Table | None
    dynamics: list[Placed]
    usage: list[Block]
    settings: list[tuple[str, str]]
    versions: list[tuple[str, str]]
    command: str
    time: str

    @property
    def charts(self) -> list[Placed]:
        """All charts of this run."""
        return [*self.schedules, *self.planes, *self.dynamics]


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
    spreads: list[Spread] = field(default_factory=list)

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
        _run_view(run, f"run-{i}", name, networks, frames, len(runs) == 1)
        for i, (run, name) in enumerate(zip(runs, names, strict=True))
    ]
    if len(runs) == 1:
        return View(f"{names[0]} – budgetnet", views)
    cost, unit = _common_cost(runs)
    planes = _place("comparison-plane", runs_planes(runs, names, cost, unit))
    lines = [_line(run, view, cost, unit) for run, view in zip(runs, views, strict=True)]
    title = f"{len(runs)} runs – budgetnet"
    return View(title, views, lines, cost, planes, spreads(runs))


def _run_view(run: RunFiles, id: str, name: str, networks: Networks, frames: int, alone: bool) -> RunView:
    net, undrawn = networks.of(run)
    time, race = timeline(run.records), outcome(run.records)
    found = limits(run, net)
    costs = meters(found, net) if net else {}
    body = anatomy(run, time.frames(len(net.graph.edges), frames), net, costs) if net else None
    kept = body.architecture if body and body.architecture and body.architecture.connected else None
    taught = bool(run.summary and run.summary.before and run.summary.before.teacher != "none")
    return RunView(
        id=id,
        name=name,
        path=str(run.path),
        answer=answer(run, found),
        met=met(run, found),
        quality=quality(run, race),
        gallery=gallery(run),
        anatomy=body,
        undrawn=undrawn,
        breakdowns=list(breakdowns(kept, costs, body.probabilities if body else None)) if kept else [],
        schedules=_place(f"{id}-schedule", schedule_charts(kept, costs) if kept else []),
        planes=_place(f"{id}-plane", race_planes(race, found)),
        more=_more(run) if alone else "",
        decided=decided(race),
        entropy=entropy_told(run.records),
        race=table(race, found),
        dynamics=_place(f"{id}-dynamics", dynamics(run.records, found, run.metric, race, taught)),
        usage=usage(run, net),
        settings=[(str(key), _text(value)) for key, value in run.settings.items() if value not in (None, [])],
        versions=[(str(k), _text(v)) for part in (run.origin.versions, run.origin.machine) for k, v in part.items()],
        command=run.origin.command,
        time=_time(run),
    )


def _time(run: RunFiles) -> str:
    """How long the run took, phase by phase."""
    summary = run.summary
    if summary is None:
        return ""
    parts = {**summary.phases, **{name: value for name, value in summary.spent.items() if name != "training"}}
    told = ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts.items() if seconds >= 1)
    return f"It took {duration(summary.total_seconds)}{f': {told}' if told else ''}."


def _more(run: RunFiles) -> str:
    """How to learn what other budgets would buy; empty for a run without a budget of its own."""
    budgets = run.summary.budgets if run.summary else ()
    if not budgets or run.settings.get("space") == "own":
        return "budgetnet.search_family(net, train, validation, budgets=[…], out=…)" if budgets else ""
    cost, share = budgets[0].cost, budgets[0].text.rpartition("<=")[2].strip().rstrip("%")
    try:
        others = [f"{cost}<={float(share) * factor:g}%" for factor in (0.5, 0.75, 1.0)]
    except ValueError:
        return f'budgetnet search --budgets "{cost}<=…" "{cost}<=…"'
    return "budgetnet search --budgets " + " ".join(shlex.quote(text) for text in others)


def _place(prefix: str, charts: Any) -> list[Placed]:
    return [Placed(f"{prefix}-{i}", chart) for i, chart in enumerate(charts)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False)


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
        _named_score(run, summary.validation_score) if summary else "–",
        _named_score(run, summary.test_score) if summary else "–",
        show(summary.params, "params") if summary else "–",
    )


def _named_score(run: RunFiles, score: float | None) -> str:
    """A score of a run among others, which may have other metrics: with its name, unless it is accuracy."""
    text = score_text(run.metric, score)
    return text if score is None or run.metric.name == ACCURACY else f"{run.metric.label} {text}"
