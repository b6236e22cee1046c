"""Scores against costs: the archive of a search with its front, the finished network, and several runs together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from budgetnet.costs import Meter
from budgetnet.network.supernet import SuperNetwork
from budgetnet.pictures.pareto import front
from budgetnet.pictures.report.charts import Chart, plane
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.numbers import number, quantity, score_text
from budgetnet.pictures.report.series import Row, thin
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import Candidate, MetricDescription

MOST_CANDIDATES = 400


def archive_planes(
    run: RunFiles, limits: Sequence[Limit], net: SuperNetwork | None, meters: Mapping[str, Meter]
) -> Iterator[Chart]:
    """A plane for each budget: what the search saw on shared weights, and the network that it finished."""
    metric = run.data.metric if run.data else MetricDescription()
    for limit in limits:
        points, edge = _candidates(run.archive, limit.cost, metric)
        result = _result(run, limit)
        if not points and not result:
            continue
        marks = _named(net, meters.get(limit.cost))
        if limit.maximum is not None:
            marks.append(
                {"cost": limit.maximum, "kind": "budget", "name": f"budget {quantity(limit.maximum, limit.unit)}"}
            )
        caption = (
            "Each point is an architecture that the search evaluated on shared weights; the line is their front. "
            "The finished network was trained further, so it stands higher."
        )
        spec = plane(result + points, edge, _near(marks, result + points), limit.cost, limit.unit, metric)
        yield Chart(f"{_title(metric)} against {limit.cost}", caption, spec, wide=True)


def _title(metric: MetricDescription) -> str:
    return metric.label[:1].upper() + metric.label[1:]


def _candidates(archive: Sequence[Candidate], cost: str, metric: MetricDescription) -> tuple[list[Row], list[Row]]:
    rows: list[Row] = []
    for entry in archive:
        price, score = entry.costs.get(cost), entry.validation_score
        if price is not None and score is not None:
            name = f"{entry.phase} {entry.epoch}"
            kind = "within every budget" if entry.feasible else "over a budget"
            rows.append({"cost": price, "score": score, "kind": kind, "name": name, "weight": 28, "strength": 0.5})
    sign = 1.0 if metric.higher_is_better else -1.0
    best = front([(row["cost"], sign * row["score"]) for row in rows])
    edge = [{"cost": rows[i]["cost"], "score": rows[i]["score"]} for i in best]
    keep = {id(rows[i]) for i in best}
    others = thin([row for row in rows if id(row) not in keep], MOST_CANDIDATES)
    return sorted([*others, *(rows[i] for i in best)], key=lambda row: row["kind"], reverse=True), edge


def _result(run: RunFiles, limit: Limit) -> list[Row]:
    score = run.summary.validation_score if run.summary else None
    if limit.value is None or score is None:
        return []
    name = "the finished network"
    return [{"cost": limit.value, "score": score, "kind": name, "name": name, "weight": 170, "strength": 1}]


def _named(net: SuperNetwork | None, meter: Meter | None) -> list[Row]:
    """What hand-made architectures of the same space cost; their score is known only where they were trained."""
    if net is None or meter is None:
        return []
    return [{"cost": meter(architecture), "kind": "network", "name": name} for name, architecture in net.named.items()]


def _near(marks: list[Row], points: Sequence[Row]) -> list[Row]:
    """The budget, and the marks that do not stretch the axis far beyond the points."""
    prices = [point["cost"] for point in points] + [mark["cost"] for mark in marks if mark["kind"] == "budget"]
    low, high = min(prices), max(prices)
    room = 0.5 * (high - low)
    return [mark for mark in marks if mark["kind"] == "budget" or low - room <= mark["cost"] <= high + room]


def runs_planes(runs: Sequence[RunFiles], names: Sequence[str], cost: str, unit: str) -> Iterator[Chart]:
    """The results of several runs, a chart for each data set and metric: other scores cannot be compared.

    Fixed architectures are baselines. The front is of validation scores, since test scores must choose nothing; they
    are shown beside them.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for run, name in zip(runs, names, strict=True):
        row = _finished(run, name, cost)
        if row:
            groups.setdefault(judged_on(run), []).append(row)
    for (data, metric), rows in groups.items():
        rows.sort(key=lambda row: row["kind"] != "found by search")
        sign = -1.0 if lower_is_better(runs, (data, metric)) else 1.0
        edge = [rows[i] for i in front([(row["cost"], sign * row["score"]) for row in rows])]
        line = [{"cost": row["cost"], "score": row["score"]} for row in edge]
        caption = "Every finished run; the line is the Pareto front of the validation scores."
        where = f" on {data}" if len(groups) > 1 else ""
        about = next(
            (run.data.metric for run in runs if run.data and run.data.metric.name == metric), MetricDescription()
        )
        spec = plane(rows, line, [], cost, unit, about, tested=True)
        yield Chart(f"{_title(about)} against {cost}{where}", caption, spec, wide=True)


def judged_on(run: RunFiles) -> tuple[str, str]:
    """The data and the metric of a run's scores; only scores with the same ones can be compared."""
    written = run.settings.get("data")
    data = run.data.name if run.data else written if isinstance(written, str) else ""
    return data, run.data.metric.name if run.data else MetricDescription().name


def lower_is_better(runs: Sequence[RunFiles], judged: tuple[str, str]) -> bool:
    """Whether the metric of these runs is an error."""
    return any(run.data and not run.data.metric.higher_is_better for run in runs if judged_on(run) == judged)


def _finished(run: RunFiles, name: str, cost: str) -> Row | None:
    summary = run.summary
    price = number(summary.cost(cost)) if summary else None
    if summary is None or price is None or summary.validation_score is None:
        return None
    kind = "found by search" if run.searched else "baseline"
    row = {"cost": price, "score": summary.validation_score, "kind": kind, "name": name}
    return {**row, "weight": 130, "strength": 1, "test": score_text(summary.metric, summary.test_score)}
