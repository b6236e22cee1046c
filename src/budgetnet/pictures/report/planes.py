"""What more or less budget would buy: trained candidates of one race, or several finished runs, score against cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from budgetnet.pictures.pareto import front
from budgetnet.pictures.report.charts import BASELINE, KINDS, OVER, SHAPES, WITHIN, Chart, plane
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.numbers import number, score_text
from budgetnet.pictures.report.race import UNJUDGED, Outcome
from budgetnet.pictures.report.series import Row
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import MetricDescription

LOSS = MetricDescription("loss", higher_is_better=False, format=".4g")
LEAST = 2
"""Networks that make a plane: one point says nothing about another budget."""


def race_planes(race: Outcome, limits: Sequence[Limit]) -> Iterator[Chart]:
    """A plane for each budget: the candidates of the race after equally long trainings of their own."""
    first = min(race.epochs, default=None)
    if first is None:
        return
    for limit in limits:
        rows = [
            {"cost": racer.costs[limit.cost], "score": racer.losses[first], "kind": _kind(racer.costs, limits)}
            | {"name": f"candidate {racer.number}, {racer.proposed}"}
            for racer in race.racers
            if limit.cost in racer.costs and racer.losses.get(first, UNJUDGED) < UNJUDGED
        ]
        if len(rows) < LEAST:
            continue
        told = f"loss after {race.epochs[first]:.2g} epochs"
        caption = (
            f"The candidates of the race, each trained by itself for {race.epochs[first]:.2g} epochs on the same "
            "batches: their loss, lower is better. The line joins those that no cheaper one beats."
        )
        spec = plane(rows, _front(rows, LOSS), limit.maximum, limit.cost, limit.unit, LOSS, told)
        title = f"Loss in the race against {limit.cost}"
        yield Chart(title, caption, spec, wide=len(limits) == 1, key=_key(rows))


def _kind(costs: dict[str, float] | object, limits: Sequence[Limit]) -> str:
    known = costs if isinstance(costs, dict) else {}
    over = any(limit.maximum is not None and known.get(limit.cost, 0.0) > limit.maximum for limit in limits)
    return OVER if over else WITHIN


def _key(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(kind, f"k-{SHAPES[kind]}") for kind in KINDS if any(row["kind"] == kind for row in rows)]


def _front(rows: Sequence[Row], metric: MetricDescription) -> list[Row]:
    sign = 1.0 if metric.higher_is_better else -1.0
    best = [rows[i] for i in front([(row["cost"], sign * row["score"]) for row in rows])]
    return [{"cost": row["cost"], "score": row["score"]} for row in best]


def runs_planes(runs: Sequence[RunFiles], names: Sequence[str], cost: str, unit: str) -> Iterator[Chart]:
    """The results of several runs, a chart for each data set and metric: other scores cannot be compared.

    The front is of validation scores, since test scores must choose nothing; they are shown beside them.
    """
    groups: dict[tuple[str, ...], list[tuple[RunFiles, Row]]] = {}
    for run, name in zip(runs, names, strict=True):
        row = _finished(run, name, cost)
        if row:
            groups.setdefault(judged_on(run), []).append((run, row))
    for (data, *_), found in groups.items():
        rows, metric = [row for _, row in found], found[0][0].metric
        rows.sort(key=lambda row: row["kind"] != WITHIN)
        better = "higher" if metric.higher_is_better else "lower"
        caption = (
            f"Every finished run by its validation {metric.label}, {better} is better; the line joins the runs that no "
            "cheaper one beats."
        )
        where = f" on {data}" if len(groups) > 1 and data else ""
        told = f"validation {metric.label}"
        spec = plane(rows, _front(rows, metric), None, cost, unit, metric, told, tested=True)
        title = f"Validation {metric.label} against {cost}{where}"
        yield Chart(title, caption, spec, wide=True, key=_key(rows))


def judged_on(run: RunFiles) -> tuple[str, ...]:
    """The data and the metric of a run's scores; only scores with the same ones can be compared.

    Data from Python have no name: what is known of them stands for it.
    """
    written = run.settings.get("data")
    data = run.data.name if run.data else written if isinstance(written, str) else ""
    about = (run.data.classes, run.data.input_shape, run.data.task) if run.data else ()
    count = run.summary.examples.get("validation", 0) if run.summary else 0
    return data, run.metric.name, *map(str, about), str(count)


def _finished(run: RunFiles, name: str, cost: str) -> Row | None:
    summary = run.summary
    price = number(summary.cost(cost)) if summary else None
    if summary is None or price is None or summary.validation_score is None:
        return None
    kind = BASELINE if not run.searched else WITHIN if summary.met else OVER
    row = {"cost": price, "score": summary.validation_score, "kind": kind, "name": name}
    return {**row, "test": score_text(summary.metric, summary.test_score)}


@dataclass(frozen=True)
class Spread:
    """Runs that differ in their seed only: how many there are, and their scores."""

    name: str
    count: int
    validation: str
    test: str


def spreads(runs: Sequence[RunFiles]) -> list[Spread]:
    """The mean and the standard deviation over seeds, for runs that differ in nothing else."""
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        if run.summary is not None:
            settings = {key: value for key, value in run.settings.items() if key not in ("seed", "threads")}
            groups.setdefault(f"{sorted(map(str, settings.items()))}{judged_on(run)}", []).append(run)
    return [_spread(group) for group in groups.values() if len({run.settings.get("seed") for run in group}) > 1]


def _spread(group: Sequence[RunFiles]) -> Spread:
    texts = []
    for part in ("validation_score", "test_score"):
        scores = [score for run in group if (score := getattr(run.summary, part)) is not None]
        metric = group[0].metric
        shown = score_text(metric, fmean(scores)) if scores else "–"
        error = f" ± {score_text(metric, stdev(scores))}" if len(scores) > 1 else ""
        texts.append(f"{shown}{error}")
    asked = group[0].settings.get("budgets")
    space = str(group[0].settings.get("space", ""))
    name = ", ".join([*(map(str, asked) if isinstance(asked, list) else ()), space])
    return Spread(name, len(group), *texts)
