"""How it learned: shared weights while the search went on, the network alone, and Γ with the costs of its samples.

Shared weights and a network that is trained alone never share a chart, nor do a loss with a teacher's part and one
without it: their scales differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from budgetnet.pictures.report.charts import Chart, key_of, lines, spike_limit
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.race import Outcome
from budgetnet.pictures.report.series import Row, Timeline, timeline
from budgetnet.records.records import Record
from budgetnet.records.results import MetricDescription

SHARED = ("warm-up", "search", "importance", "choose")
RACE = "race"
SETTLED, MOVED = 0.05, 0.1
"""Bits per edge: below the first an edge distribution has decided; a change below the second is hardly one."""


def dynamics(
    records: Sequence[Record], limits: Sequence[Limit], metric: MetricDescription, race: Outcome, taught: bool
) -> list[Chart]:
    """The charts for which a run has numbers."""
    shared = timeline([record for record in records if record.phase in SHARED])
    alone = timeline(_alone(records, race))
    charts = [*_learning(alone, metric, "The network alone", taught), *_sharing(shared), *_distribution(shared, limits)]
    return [chart for chart in charts if chart]


def entropy_told(records: Sequence[Record]) -> str:
    """What became of Γ, in a sentence; empty if the run has none."""
    seen = [value for r in records if isinstance(value := r.values.get("entropy"), int | float)]
    if len(seen) < 2:
        return ""
    first, last = float(seen[0]), float(seen[-1])
    verdict = (
        "it has decided"
        if last < SETTLED
        else "it hardly moved, so that it decided little"
        if abs(first - last) < MOVED
        else "it moved, and is still undecided about some edges"
    )
    return (
        f"Γ, the probabilities of the edges, had an entropy of {first:.2f} bits per edge at first and of {last:.2f} at "
        f"the end of the search: {verdict}. (0 bits: every edge is certain; 1 bit: every edge is tossed like a coin.)"
    )


def _alone(records: Sequence[Record], race: Outcome) -> list[Record]:
    """The training of the network that was found: its own turns in the race, then its finish."""
    winner = race.winner.number if race.winner else None
    own: list[Record] = []
    for record in records:
        if record.phase in SHARED or record.kind in ("racer", "chosen"):
            continue
        turn = record.kind != "phase" and winner is not None and record.values.get("racer") == winner
        if record.phase != RACE or turn:
            own.append(record)
    return _in_turn(own, race)


def _in_turn(records: Sequence[Record], race: Outcome) -> list[Record]:
    """Records whose steps in the race count from the first step of their own turns."""
    turns = [record for record in records if record.phase == RACE]
    if not turns:
        return list(records)
    ends = [record for record in turns if record.kind == "epoch"]
    total = max(race.epochs.values(), default=1.0)
    places = {id(record): place for place, record in enumerate(turns, 1)}
    start = Record("phase", RACE, 0, 0, turns[0].time, {"epochs": total, "steps": len(turns)})
    moved = [
        replace(record, step=places[id(record)]) if record.phase == RACE else record
        for record in records
        if record.phase != RACE or ends
    ]
    return [start, *moved]


def _learning(time: Timeline, metric: MetricDescription, title: str, taught: bool) -> Iterator[Chart | None]:
    behind = [] if time.short else time.rows("step", [("loss", "single steps")])
    caption = "In its race and its finish, on training batches and on validation data."
    caption += " The faint line is single steps." if behind else ""
    panel, what = _Panel(time), f"{title}: loss"
    if taught:
        with_teacher = "On training batches; a part of it is the distance to the teacher's outputs."
        yield panel.chart(f"{what} with the teacher's part", with_teacher, [("loss", "training")], clip=True)
        without = "On validation data, without the teacher's part."
        yield panel.chart(what, without, [("validation_loss", "validation")], clip=True)
    else:
        yield panel.chart(
            what, caption, [("loss", "training"), ("validation_loss", "validation")], behind=behind, clip=True
        )
    if metric.name != "loss":
        pairs = [(metric.name, "training"), (f"validation_{metric.name}", "validation")]
        shown = "~%" if metric.format.endswith("%") else "~g"
        direction = "Higher" if metric.higher_is_better else "Lower"
        caption = f"On training batches and on validation data. {direction} is better."
        yield panel.chart(f"{title}: {metric.label}", caption, pairs, shown, from_zero=False)


def _sharing(time: Timeline) -> Iterator[Chart | None]:
    caption = "Mean training loss of the architectures that were sampled; their weights are shared."
    yield _Panel(time).chart("Shared weights: loss", caption, [("loss", "training")], clip=True)


def _distribution(time: Timeline, limits: Sequence[Limit]) -> Iterator[Chart | None]:
    panel = _Panel(time)
    caption = "Entropy of the edge distribution Γ, in bits per edge: 0 when every edge is certain."
    yield panel.chart("Entropy of Γ", caption, [("entropy", "entropy")])
    for limit in limits:
        name = limit.cost
        pairs = [
            (f"cost/{name}", "mean of samples"),
            (f"mode_cost/{name}", "most probable"),
            (f"target/{name}", "budget"),
        ]
        caption = "What sampled architectures cost, against the budget, which the search may lower to its target."
        yield panel.chart(f"Sampled cost: {name}", caption, pairs, "~s")


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
        clip: bool = False,
    ) -> Chart | None:
        rows = self.time.lines(pairs)
        if not rows and not behind:
            return None
        values = [row["value"] for row in rows]
        top = spike_limit(values) if clip else None
        if top is not None and behind:
            behind = [row for row in behind if row["value"] <= top]
        if top is not None:
            caption += f" Spikes above {top:.3g} are cut off ({sum(value > top for value in values)} of {len(values)})."
        spec = lines(rows, list(self.time.phases), title, number_format, from_zero, behind, top)
        names = list(dict.fromkeys(row["series"] for row in rows))
        return Chart(title, caption, spec, key=key_of(names))
