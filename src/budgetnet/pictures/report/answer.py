"""The answer first: one sentence, the state of the run, and the numbers that people ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from budgetnet.costs.units import COUNTS, show
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.numbers import duration, percent, quantity, score_text
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import ACCURACY, MetricDescription, Summary

GOOD, BAD, OPEN = "good", "bad", "open"


@dataclass(frozen=True)
class Tile:
    """A number with its name; `filled` is the share of a budget that is used."""

    label: str
    value: str
    note: str = ""
    mood: str = ""
    filled: float | None = None


@dataclass(frozen=True)
class Answer:
    """What a reader should know if they read nothing else."""

    sentence: str
    state: str
    mood: str
    tiles: list[Tile]
    warnings: list[str]


def answer(run: RunFiles, limits: list[Limit]) -> Answer:
    """The answer of a run, finished or not."""
    said = run.summary.warnings if run.summary else ()
    warnings = [*(f"{problem}." for problem in run.problems), *(f"{text[0].upper()}{text[1:]}." for text in said)]
    if not run.finished:
        warnings.insert(0, "The result of this run cannot be read." if run.ended else _unfinished(run))
    elif not run.whole:
        warnings.insert(0, "The records are incomplete: records.jsonl is missing or ends in a torn line.")
    tiles = [*(_limit_tile(limit) for limit in limits), *_result_tiles(run)]
    return Answer(_sentence(run, limits), _state(run, limits), _mood(run, limits), tiles, warnings)


def _sentence(run: RunFiles, limits: list[Limit]) -> str:
    if run.summary is None:
        if run.ended:
            return "This run came to its end, but its result is damaged."
        asked = " and ".join(_asked(limit) for limit in limits)
        return f"A search for a network of {asked} has not come to its end." if asked else "This run has no result yet."
    score = _score(run, run.summary)
    if not limits:
        size = f" of {quantity(run.summary.macs, 'macs')}"
        return f"A fixed network{size} reaches {score}." if score else f"A fixed network{size} was trained."
    costs = " and ".join(_met(limit) for limit in limits)
    verb = "fits its budget" if all(limit.met for limit in limits) else "does not fit its budget"
    return f"The network {verb}, {costs}{', and reaches ' + score if score else ''}."


def _asked(limit: Limit) -> str:
    return f"at most {quantity(limit.maximum, limit.unit)}" if limit.maximum is not None else f"limited {limit.cost}"


def _met(limit: Limit) -> str:
    if limit.value is None or limit.maximum is None:
        return f"limited {limit.cost}"
    return f"{show(limit.value, limit.unit)} of {_asked(limit)}"


def _score(run: RunFiles, summary: Summary) -> str:
    known = (
        ("test", summary.test_score, summary.test_mean_iou),
        ("validation", summary.validation_score, summary.validation_mean_iou),
    )
    for data, value, overlap in known:
        if value is not None:
            more = "" if overlap is None else f" and {percent(overlap)} mean intersection over union"
            return f"{score_text(summary.metric, value)} {_measure(run)}{more} on {data} data"
    return ""


def _measure(run: RunFiles) -> str:
    metric = run.data.metric if run.data else MetricDescription()
    pixels = run.data is not None and run.data.task == "segmentation" and metric.name == ACCURACY
    return f"pixel {metric.label}" if pixels else metric.label


def _state(run: RunFiles, limits: list[Limit]) -> str:
    if not run.finished:
        return "damaged" if run.ended else "not finished"
    if not limits:
        return "baseline"
    if run.certificate is not None:
        return "certificate holds" if run.certificate.holds else "certificate does not hold"
    return f"budget{' ' if all(limit.met for limit in limits) else ' not '}met, no certificate"


def _mood(run: RunFiles, limits: list[Limit]) -> str:
    if not run.finished or not limits:
        return OPEN
    if not all(limit.met for limit in limits) or (run.certificate is not None and not run.certificate.holds):
        return BAD
    return OPEN if run.certificate is None else GOOD


def _unfinished(run: RunFiles) -> str:
    last = run.records[-1] if run.records else None
    where = f"The records end in phase “{last.phase}”, epoch {last.epoch}." if last else "There are no records yet."
    torn = "" if run.whole or not last else " The last line is torn, as when a run is killed while it writes."
    return f"This run was not finished when this page was made. {where}{torn}"


def _limit_tile(limit: Limit) -> Tile:
    value = "–" if limit.value is None else show(limit.value, limit.unit)
    note = _asked(limit).removesuffix(f" {limit.unit}") if limit.unit in COUNTS else _asked(limit)
    known = limit.value is not None and limit.maximum
    filled = (
        min(max(limit.value / limit.maximum, 0.0), 1.5) if known and limit.value is not None and limit.maximum else None
    )
    verdict = limit.certified if limit.certified is not None else limit.met
    mood = OPEN if verdict is None else GOOD if verdict else BAD
    return Tile(f"budget: {limit.cost}", value, note, mood, filled if filled is None or math.isfinite(filled) else None)


def _result_tiles(run: RunFiles) -> list[Tile]:
    summary = run.summary
    if summary is None:
        return []
    tiles: list[Tile] = []
    test, validation = summary.test_score, summary.validation_score
    if test is not None:
        held = f"validation {score_text(summary.metric, validation)}"
        tiles.append(Tile(f"test {_measure(run)}", score_text(summary.metric, test), held))
    elif validation is not None:
        tiles.append(Tile(f"validation {_measure(run)}", score_text(summary.metric, validation)))
    test, validation = summary.int8_test, summary.int8_validation
    if test is not None:
        held = f"validation {score_text(summary.metric, validation)}"
        tiles.append(Tile(f"int8 file: test {_measure(run)}", score_text(summary.metric, test), held))
    elif validation is not None:
        tiles.append(Tile(f"int8 file: validation {_measure(run)}", score_text(summary.metric, validation)))
    test, validation = summary.test_mean_iou, summary.validation_mean_iou
    if test is not None:
        tiles.append(Tile("test mean IoU", percent(test), f"validation {percent(validation)}"))
    elif validation is not None:
        tiles.append(Tile("validation mean IoU", percent(validation)))
    tiles.append(Tile("multiply-adds", show(summary.macs, "macs"), "one input"))
    tiles.append(Tile("parameters", show(summary.params, "params")))
    tiles += [Tile(name, value) for name, value in summary.files()]
    note = ", ".join(f"{name} {duration(value)}" for name, value in (summary.spent or summary.phases).items())
    tiles.append(Tile("time", duration(summary.total_seconds), note))
    if summary.spent:
        phases = ", ".join(f"{name} {duration(value)}" for name, value in summary.phases.items() if value)
        tiles.append(Tile("phases of the training", duration(summary.seconds), phases))
    return tiles
