"""What a run says at its end: the summary of its network, and where its time went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from budgetnet.budgets.budget import Budget
from budgetnet.budgets.certificate import BudgetEntry, Certificate
from budgetnet.costs import file_size, macs, params, size
from budgetnet.network.graph import Architecture
from budgetnet.records.folder import RunFolder
from budgetnet.records.results import BudgetResult, Summary
from budgetnet.records.stopwatch import Stopwatch
from budgetnet.runs import quantised
from budgetnet.runs.before import before_and_after
from budgetnet.runs.job import Job
from budgetnet.runs.stored import INT8_FILE
from budgetnet.strategies.runner import Outcome
from budgetnet.strategies.state import Inherited
from budgetnet.training.evaluation import judge

TRAINING, MEASURING, WRITING = "training", "measuring", "writing"
"""The kinds of work of a run."""
BYTES = ("size", "file_size")
"""Costs that people compare with a file."""


class Spent:
    """Seconds of a run by kind of work. Measurements that a phase of the training makes count as measuring."""

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self._budgets = budgets
        self._watch = Stopwatch(MEASURING)
        self._measured = 0.0

    def on(self, kind: str) -> None:
        """What comes next is work of this kind."""
        self._watch.phase(kind)

    def training(self, train: Callable[[], Outcome]) -> Outcome:
        """Trains, and remembers how long budgets were measured meanwhile."""
        self.on(TRAINING)
        before = self._measurements()
        outcome = train()
        self._measured += self._measurements() - before
        return outcome

    def told(self, summary: Summary) -> Summary:
        """A summary with the seconds so far; those of training are of all phases, also before a resume."""
        totals = self._watch.totals()
        spent = {
            TRAINING: max(summary.seconds - self._measured, 0.0),
            MEASURING: totals.get(MEASURING, 0.0) + self._measured,
            WRITING: totals.get(WRITING, 0.0),
        }
        return replace(summary, spent=spent)

    def _measurements(self) -> float:
        return sum(budget.meter.seconds for budget in self._budgets)


def summarize(
    job: Job,
    folder: RunFolder,
    outcome: Outcome,
    certificate: Certificate,
    tested: bool,
    inherited: Inherited | None = None,
) -> Summary:
    """Judges the finished network on all validation data and, if asked, on all test data.

    Args:
        job: The run.
        folder: Its folder.
        outcome: What the phases handed over.
        certificate: What was measured.
        tested: Whether to look at test data.
        inherited: What the search knew of trained weights.

    Returns:
        The summary, without the seconds of measuring and writing.
    """
    model, kept = outcome.model.eval(), outcome.architecture
    test = judge(model, job.task, job.test.evaluation()) if job.test is not None and tested else None
    validation = judge(model, job.task, job.validation.evaluation())
    return Summary(
        run=str(folder.path),
        space=job.net.name,
        recipe=job.recipe.name,
        seed=job.config.seed,
        architecture=tuple(edge.name for edge in kept.live()),
        budgets=tuple(_budget_result(entry, certificate) for entry in certificate.budgets),
        validation_score=validation.metric,
        validation_mean_iou=validation.mean_iou,
        test_score=test.metric if test else None,
        test_mean_iou=test.mean_iou if test else None,
        metric=job.data.metric,
        macs=round(macs(job.net)(kept)),
        params=round(params(job.net)(kept)),
        seconds=sum(outcome.seconds.values()),
        phases=dict(outcome.seconds),
        int8_validation=certificate.int8.int8 if certificate.int8 else None,
        int8_test=int8_test(job, folder) if test else None,
        before=before_and_after(job, kept, model, inherited, tested),
        size=round(size(job.net)(kept)),
        file_size=_file_size(job, kept, certificate),
        examples={"validation": validation.examples, **({"test": test.examples} if test else {})},
    )


def _file_size(job: Job, kept: Architecture, certificate: Certificate) -> int | None:
    """The bytes of the ONNX file, for a run whose user thinks in bytes; None if there is no such file."""
    if not any(entry.cost in BYTES for entry in certificate.budgets):
        return None
    measured = [entry.measured for entry in certificate.budgets if entry.cost == "file_size"]
    try:
        return round(measured[0] if measured else file_size(job.net).evidence(kept).value)
    except Exception:  # a module of the user's may contain anything, and a finished run is not lost for a number
        return None


def int8_test(job: Job, folder: RunFolder) -> float | None:
    """The score of the int8 file on test data, where there are both."""
    if job.test is None or not quantised.wanted(job.budgets):
        return None
    return quantised.score(folder.read_bytes(INT8_FILE), job, job.test).metric


def _budget_result(entry: BudgetEntry, certificate: Certificate) -> BudgetResult:
    """A budget about an int8 file is met only if that file is nearly as good as the network."""
    worse = certificate.int8 is not None and not certificate.int8.holds and entry.how.get("precision") == "int8"
    return BudgetResult(
        cost=entry.cost,
        unit=entry.unit,
        maximum=entry.maximum,
        value=entry.measured,
        met=entry.holds and not worse,
        text=entry.text,
    )
