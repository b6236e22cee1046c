"""How good the network is: its scores with their spread, and what it can be compared with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from budgetnet.costs.units import show
from budgetnet.pictures.report.numbers import percent, score_text
from budgetnet.pictures.report.race import UNJUDGED, Outcome, Racer
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import ACCURACY, PARTS, MetricDescription, Summary

SHARES = (ACCURACY, "top5")
"""Metrics that are a share of the examples."""


@dataclass(frozen=True)
class Tile:
    """A number with its name and a note."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """A network beside the one that was found; what is not known of it is a dash."""

    name: str
    about: str
    validation: str
    test: str
    loss: str
    macs: str
    found: bool = False


@dataclass(frozen=True)
class Quality:
    """The section."""

    tiles: list[Tile]
    rows: list[Compared]
    notes: list[str]
    metric: str
    raced: str


def measure_of(run: RunFiles) -> str:
    """What scores measure, for people."""
    metric = run.data.metric if run.data else MetricDescription()
    pixels = run.data is not None and run.data.task == "segmentation" and metric.name == ACCURACY
    return f"pixel {metric.label}" if pixels else metric.label


def quality(run: RunFiles, race: Outcome) -> Quality | None:
    """The scores of a finished run, and what is known of other networks; None if there are no scores."""
    summary = run.summary
    if summary is None:
        return None
    what = measure_of(run)
    tiles = list(_tiles(summary, what))
    rows = list(_rows(summary, race)) if summary.before is not None or len(race.racers) > 1 else []
    first = min(race.epochs, default=None)
    raced = "" if first is None else f"race loss after {race.epochs[first]:.2g} epochs"
    return Quality(tiles, rows, list(_notes(summary, race)), what, raced) if tiles or rows else None


def _tiles(summary: Summary, what: str) -> Iterator[Tile]:
    metric = summary.metric
    direction = "higher is better" if metric.higher_is_better else "lower is better"
    for part, score in zip(reversed(PARTS), (summary.test_score, summary.validation_score), strict=True):
        if score is not None:
            yield Tile(f"{part} {what}", score_text(metric, score), _spread(summary, part) or direction)
    for part, score in (("test", summary.int8_test), ("validation", summary.int8_validation)):
        if score is not None:
            yield Tile(f"int8 file: {part} {what}", score_text(metric, score))
    if metric.name != "mean_iou":
        for part, overlap in (("test", summary.test_mean_iou), ("validation", summary.validation_mean_iou)):
            if overlap is not None:
                yield Tile(f"{part} mean IoU", percent(overlap))


def _spread(summary: Summary, part: str) -> str:
    """The standard error of a score that is a share of examples; empty if it is not one, or their number not known."""
    score = summary.validation_score if part == "validation" else summary.test_score
    count = summary.examples.get(part, 0)
    if score is None or count < 2 or summary.metric.name not in SHARES or summary.validation_mean_iou is not None:
        return ""
    error = math.sqrt(max(score * (1 - score), 0.0) / count)
    return f"± {100 * error:.1f} points (standard error, {count:,} examples)"


def _rows(summary: Summary, race: Outcome) -> Iterator[Compared]:
    """The found network, the one before, and the losers of the race."""
    metric, before, winner = summary.metric, summary.before, race.winner
    scores = (score_text(metric, summary.validation_score), score_text(metric, summary.test_score))
    loss = _loss(race, winner.number) if winner else "–"
    yield Compared("the network found", "trained to the end", *scores, loss, show(summary.macs, "macs"), found=True)
    if before is not None:
        scores = (score_text(metric, before.validation_score), score_text(metric, before.test_score))
        yield Compared("the full network", "as it came, before", *scores, "–", show(before.macs, "macs"))
    losers = [racer for racer in race.racers if racer is not winner]
    uniform = [racer for racer in losers if racer.origin == "uniform"]
    others = [racer for racer in losers if racer.origin != "uniform"]
    if uniform:
        yield _raced("uniform widths", uniform, race)
    if others:
        yield _raced("the loser" if len(others) == 1 else f"the {len(others)} losers", others, race)


def _raced(name: str, racers: Sequence[Racer], race: Outcome) -> Compared:
    """Candidates that lost the race, together."""
    first = min(race.epochs, default=0)
    losses = [racer.losses[first] for racer in racers if racer.losses.get(first, UNJUDGED) < UNJUDGED]
    macs = [racer.costs["macs"] for racer in racers if "macs" in racer.costs]
    loss = _range([f"{loss:.4g}" for loss in sorted(losses)]) if losses else "diverged"
    cost = _range([show(value, "macs") for value in sorted(macs)])
    return Compared(name, "trained for the race only", "–", "–", loss, cost)


def _range(texts: Sequence[str]) -> str:
    if not texts:
        return "–"
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _loss(race: Outcome, number: int) -> str:
    first = min(race.epochs, default=None)
    racer = next((one for one in race.racers if one.number == number), None)
    loss = None if racer is None or first is None else racer.losses.get(first)
    return "diverged" if racer and racer.diverged else "–" if loss is None or loss > UNJUDGED else f"{loss:.4g}"


def _notes(summary: Summary, race: Outcome) -> Iterator[str]:
    if summary.before is not None:
        yield from summary.before.notes()
    if len(race.racers) > 1:
        yield (
            "Losers were trained for the race only: their losses compare with the winner's loss in the race, not with "
            "its scores."
        )
    if summary.before is None:
        yield ("A sweep over seeds gives the spread by luck, budgetnet train a baseline to compare with.")
