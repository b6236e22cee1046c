"""The records of a run as rows for charts, on one axis: epochs of the whole run, counted from its start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from budgetnet.pictures.report.numbers import number
from budgetnet.records.records import Record

Row = dict[str, Any]
T = TypeVar("T")

MOST_POINTS = 300
"""More points than this cannot be told apart on a chart."""

SHORT = 24
"""A run of fewer epochs is drawn from its single steps."""


@dataclass(frozen=True)
class Timeline:
    """Records in order, each with its place: epochs since the start of the run, fractions included."""

    moments: tuple[tuple[float, Record], ...]
    phases: tuple[Row, ...]

    @property
    def short(self) -> bool:
        """Whether there are too few epochs for a line."""
        return sum(record.kind == "epoch" for _, record in self.moments) < SHORT

    def rows(self, kind: str, names: Sequence[tuple[str, str]]) -> list[Row]:
        """A row per record of a kind and series; `names` are pairs of a value's name and its label."""
        rows = []
        for name, label in names:
            values = [
                (place, value, record.phase)
                for place, record in self.moments
                if record.kind == kind and (value := number(record.values.get(name))) is not None
            ]
            rows += [
                {"epoch": round(place, 3), "series": label, "value": float(f"{value:.5g}"), "phase": phase}
                for place, value, phase in thin(values)
            ]
        return rows

    def lines(self, names: Sequence[tuple[str, str]]) -> list[Row]:
        """Rows of whichever records make a line: epochs, or steps if the run is short and has the value there."""
        rows: list[Row] = []
        for pair in names:
            rows += (self.rows("step", [pair]) if self.short else []) or self.rows("epoch", [pair])
        return rows

    def frames(self, edges: int, most: int) -> list[Row]:
        """Edge probabilities (per mille) over the search, for the slider; those of another graph are left out."""
        found = []
        for place, record in self.moments:
            probabilities = record.values.get("probabilities")
            if isinstance(probabilities, list) and len(probabilities) == edges:
                entropy = number(record.values.get("entropy"))
                found.append(
                    {"epoch": round(place, 2), "p": [_per_mille(p) for p in probabilities], "entropy": entropy}
                )
        return thin(found, most)


def timeline(records: Sequence[Record]) -> Timeline:
    """Places each record by its step in its phase; the record at the start of a phase says how long epochs are."""
    moments: list[tuple[float, Record]] = []
    phases: list[Row] = []
    for segment in _segments(records):
        start = phases[-1]["end"] if phases else 0.0
        length = _epochs_per_step(segment)
        moments += [(start + record.step * length, record) for record in segment]
        end = max(start + record.step * length for record in segment)
        if end > start:
            phases.append({"phase": segment[0].phase, "start": start, "end": round(end, 3)})
    return Timeline(tuple(moments), tuple(phases))


def _segments(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Parts of the run between whose records the step counts on."""
    segment: list[Record] = []
    for record in records:
        if segment and (record.kind == "phase" or record.phase != segment[0].phase):
            yield segment
            segment = []
        segment.append(record)
    if segment:
        yield segment


def _epochs_per_step(segment: Sequence[Record]) -> float:
    first = segment[0]
    epochs, steps = number(first.values.get("epochs")), number(first.values.get("steps"))
    if first.kind == "phase" and epochs is not None and steps:
        return epochs / steps
    ends = [record for record in segment if record.kind == "epoch" and record.step > 0]
    return len(ends) / ends[-1].step if ends else 0.0


def _per_mille(value: Any) -> int:
    share = number(value)
    return 0 if share is None else round(1000 * min(max(share, 0.0), 1.0))


def thin(items: Sequence[T], most: int = MOST_POINTS) -> list[T]:
    """At most so many of the items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[round(i * last / (most - 1))] for i in range(most)]
