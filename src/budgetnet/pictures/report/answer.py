"""The answer first: one sentence, the state of the run, and what a reader must not overlook."""

from __future__ import annotations

from dataclasses import dataclass

from budgetnet.costs.units import show
from budgetnet.pictures.report.limits import Limit
from budgetnet.pictures.report.met import BAD, GOOD, OPEN
from budgetnet.pictures.report.numbers import percent, quantity, score_text
from budgetnet.pictures.report.quality import measure_of
from budgetnet.records.folder import RunFiles
from budgetnet.records.results import Summary


@dataclass(frozen=True)
class Answer:
    """What a reader should know if they read nothing else."""

    sentence: str
    state: str
    mood: str
    warnings: list[str]


def answer(run: RunFiles, limits: list[Limit]) -> Answer:
    """The answer of a run, finished or not."""
    said = run.summary.warnings if run.summary else ()
    warnings = [*(f"{problem}." for problem in run.problems), *(f"{text[0].upper()}{text[1:]}." for text in said)]
    if not run.finished:
        warnings.insert(0, "The result of this run cannot be read." if run.ended else _unfinished(run))
    elif not run.whole:
        warnings.insert(0, "The records are incomplete: records.jsonl is missing or ends in a torn line.")
    return Answer(_sentence(run, limits), _state(run, limits), _mood(run, limits), warnings)


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
    return (
        f"at most {_tied(quantity(limit.maximum, limit.unit))}"
        if limit.maximum is not None
        else f"limited {limit.cost}"
    )


def _met(limit: Limit) -> str:
    if limit.value is None or limit.maximum is None:
        return f"limited {limit.cost}"
    return f"{_tied(show(limit.value, limit.unit))} of {_asked(limit)}"


def _tied(text: str) -> str:
    """A number that is not parted from its unit at the end of a line."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _score(run: RunFiles, summary: Summary) -> str:
    known = (
        ("test", summary.test_score, summary.test_mean_iou),
        ("validation", summary.validation_score, summary.validation_mean_iou),
    )
    for data, value, overlap in known:
        if value is not None:
            more = "" if overlap is None else f" and {percent(overlap)} mean intersection over union"
            share = summary.metric.format.endswith("%")
            text, what = score_text(summary.metric, value), measure_of(run)
            return f"{f'{text} {what}' if share else f'{what} {text}'}{more} on {data} data"
    return ""


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
