"""Learning dynamics: loss, score, entropy, sampled cost against budget, λ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from budgetnet.pictures.report.charts import Chart, lines
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.series import Row, Timeline
from budgetnet.records.results import MetricDescription


def dynamics(time: Timeline, limits: list[Limit], metric: MetricDescription) -> list[Chart]:
    """The charts for which a run has numbers."""
    panel = _Panel(time)
    return [chart for chart in (*_learning(panel, metric), *_distribution(panel, limits)) if chart]


def _learning(panel: _Panel, metric: MetricDescription) -> Iterator[Chart | None]:
    behind = [] if panel.time.short else panel.time.rows("step", [("loss", "single steps")])
    caption = "On training batches, and on data that no weight has seen."
    caption += " The faint line is single steps." if behind else ""
    yield panel.chart("Loss", caption, [("loss", "training"), ("validation_loss", "validation")], behind=behind)
    if metric.name != "loss":
        pairs = [(metric.name, "training"), (f"validation_{metric.name}", "validation")]
        caption = "On training batches, and on data that no weight has seen."
        shown = "~%" if metric.format.endswith("%") else "~g"
        yield panel.chart(metric.label[:1].upper() + metric.label[1:], caption, pairs, shown, from_zero=False)
    pairs = [("lr", "weights"), ("policy_lr", "edge distribution")]
    yield panel.chart("Learning rate", "Of the weights and of the edge distribution.", pairs)


def _distribution(panel: _Panel, limits: list[Limit]) -> Iterator[Chart | None]:
    caption = "Entropy of the edge distribution, in bits per edge: 0 when every edge is certain."
    yield panel.chart("Entropy", caption, [("entropy", "entropy")])
    for limit in limits:
        name = limit.cost
        pairs = [
            (f"cost/{name}", "mean of samples"),
            (f"mode_cost/{name}", "most probable"),
            (f"target/{name}", "budget"),
        ]
        caption = "What sampled architectures cost, against the budget, which the search may lower to its target."
        yield panel.chart(f"Sampled cost: {name}", caption, pairs, "~s")
        pairs = [(f"violation/{name}", "over budget")]
        yield panel.chart(f"Samples over budget: {name}", "Share of the sampled architectures.", pairs, "~%")
    pairs = [(f"lambda/{limit.cost}", limit.cost) for limit in limits]
    yield panel.chart("Multiplier λ", "The price of going over a budget, adapted to the violation.", pairs)


@dataclass(frozen=True)
class _Panel:
    time: Timeline

    def chart(
        self,
        title: str,
        caption: str,
        pairs: list[tuple[str, str]],
        number_format: str = "~g",
        from_zero: bool = True,
        behind: list[Row] | None = None,
    ) -> Chart | None:
        rows = self.time.lines(pairs)
        if not rows and not behind:
            return None
        spec = lines(rows, list(self.time.phases), title, number_format, from_zero, behind)
        return Chart(title, caption, spec)
