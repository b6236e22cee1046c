"""What a run says about itself, as frozen values: the summary of a finished run, its budgets, its data, its origin."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from budgetnet.costs.units import show
from budgetnet.naming.html import table
from budgetnet.naming.values import NoneIfNotFinite, Range, plain, printable, typed

LARGEST_SIDE = 2**24
"""Of an input, along one dimension: what is larger was not written by a run."""

Measured = Annotated[float, Range(nan=True)]
"""What a cost of the user's returned: a value that is not a number meets no budget, but is still reported."""
Score = Annotated[float | None, NoneIfNotFinite()]
"""A score or a loss; None if it is not known or was not finite."""
Positive = Annotated[float, Range(0, 1e300)]
InputType = Literal["float32", "float16", "int64", "int32", "uint8", "bool"]
PARTS = ("validation", "test")
"""Parts of the data that a summary has scores on."""
Count = Annotated[int, Range(0, 2**63 - 1)]
Side = Annotated[int, Range(1, LARGEST_SIDE)]


@dataclass(frozen=True)
class BudgetResult:
    """One budget of a finished run: what was allowed, what the network costs, and whether that is certified.

    Attributes:
        cost: The name of the cost, such as `macs` or `steps(4)`.
        unit: The base unit of `maximum` and `value`.
        maximum: The limit.
        value: The cost of the network, as it was counted or measured for the certificate.
        met: Whether the certificate holds for this budget.
        text: The budget as the user wrote it.
    """

    cost: str
    unit: str
    maximum: float
    value: Measured
    met: bool
    text: str = ""

    @property
    def share(self) -> float:
        """The part of the budget that is used; infinite where nothing was allowed."""
        return self.value / self.maximum if self.maximum else float("inf")


ACCURACY = "accuracy"
"""What scores measure unless a run says otherwise; runs of older versions do not say."""
_FORMAT = re.compile(r"\.[0-9][%efg]")


@dataclass(frozen=True)
class MetricDescription:
    """What scores measure.

    Attributes:
        name: Its name; the scores of records and summaries have it in theirs.
        higher_is_better: The direction.
        format: How a score is shown.
    """

    name: str = ACCURACY
    higher_is_better: bool = True
    format: str = ".2%"

    @property
    def label(self) -> str:
        """The name for people."""
        return printable(self.name.replace("_", " "))

    def show(self, score: float | None, digits: int | None = None) -> str:
        """A score for people; a percentage with so many digits if they are given. Nothing if it is not known."""
        if score is None:
            return ""
        known = self.format if _FORMAT.fullmatch(self.format) else ".4g"
        return f"{score:.{digits}%}" if digits is not None and known.endswith("%") else f"{score:{known}}"


@dataclass(frozen=True)
class Before:
    """The trained network that a run started from, beside what the run made of it.

    Attributes:
        validation_score: The metric of the full network on all validation data.
        test_score: The same on test data; None if nothing was tested.
        macs: Its multiply-adds for one input.
        params: Its parameters.
        costs: Its cost under each budget, by the name of the cost.
        file_bytes: Of a file with its weights.
        file_bytes_after: The same for the result.
        removed: What the result leaves out, a line for each layer or branch.
        race_losses: The loss of the chosen network in the race (`chosen`) and of uniform widths at the same cost.
        teacher: What the result learned from besides its targets: `self`, a name, or `none`.
        uniform: Whether the result has uniform widths: nothing better was found.
    """

    validation_score: Score
    test_score: Score
    macs: Count
    params: Count
    costs: Mapping[str, Measured]
    file_bytes: Count
    file_bytes_after: Count
    removed: tuple[str, ...] = ()
    race_losses: Mapping[str, float] = field(default_factory=dict)
    teacher: str = "none"
    uniform: bool = False

    def compared(self, after: Summary) -> list[tuple[str, str, str]]:
        """What is compared, before and after, for people: the scores, every cost, the counts and the file."""
        metric = after.metric
        scores = (
            ("validation", self.validation_score, after.validation_score),
            ("test", self.test_score, after.test_score),
        )
        rows = [
            (f"{part} {metric.label}", metric.show(a), metric.show(b))
            for part, a, b in scores
            if a is not None and b is not None
        ]
        for budget in after.budgets:
            if budget.cost in self.costs and budget.cost not in ("macs", "params"):
                rows.append((budget.cost, show(self.costs[budget.cost], budget.unit), show(budget.value, budget.unit)))
        counts = (("macs", self.macs, after.macs), ("params", self.params, after.params))
        rows += [(name, show(a, name), show(b, name)) for name, a, b in counts]
        return [*rows, ("weights file", show(self.file_bytes, "B"), show(self.file_bytes_after, "B"))]

    def notes(self) -> list[str]:
        """How the result did against uniform widths in the race, and what it learned from, as sentences."""
        losses, notes = self.race_losses, []
        if self.uniform:
            notes = ["The chosen network has uniform widths: every layer keeps the same share."]
        elif losses.keys() >= {"chosen", "uniform"}:
            raced = f"The loss of the chosen network in the race was {losses['chosen']:.4f}"
            notes = [f"{raced}, that of uniform widths at the same cost {losses['uniform']:.4f}."]
        taught = {"none": "It had no teacher.", "self": "The network before was its teacher."}
        return [*notes, taught.get(self.teacher, f"Its teacher was {self.teacher}.")]


@dataclass(frozen=True)
class Summary:
    """The result of a finished run, as `summary.json` holds it.

    Attributes:
        run: The folder, as it was named when the run finished.
        space: The super network.
        recipe: The name of the recipe.
        seed: The seed.
        architecture: The names of the edges that the network keeps.
        budgets: The budgets, in the order in which they were given.
        validation_score: The metric on all validation data.
        test_score: The metric on all test data; None if the network was not tested.
        macs: Multiply-adds of the network for one input.
        params: Parameters of the network.
        seconds: Seconds of all phases together.
        phases: Seconds of each phase.
        validation_mean_iou: Mean intersection over union, of a segmentation only.
        test_mean_iou: The same on test data.
        metric: What the scores measure; they are stored under its name, such as `validation_r2`.
        int8_validation: The metric of the int8 file on validation data, if a budget is about that file.
        int8_test: The same on test data.
        before: The trained network that the run started from; None for fresh weights.
        spent: Seconds by kind of work: `training`; `measuring` of costs and scores; `writing` of files and pages. The
            last two are those of the process that finished the run. Empty for runs of older versions.
        size: Bytes of the network's parameters and buffers.
        file_size: Bytes of the network as an ONNX file, where a budget is on `size` or `file_size`.
        examples: How many examples the scores are of, by the part of the data.
    """

    run: str
    space: str
    recipe: str
    seed: Count
    architecture: tuple[str, ...]
    budgets: tuple[BudgetResult, ...]
    validation_score: Score
    test_score: Score
    macs: Count
    params: Count
    seconds: Positive
    phases: Mapping[str, Positive]
    validation_mean_iou: Score = None
    test_mean_iou: Score = None
    metric: MetricDescription = field(default_factory=MetricDescription)
    int8_validation: Score = None
    int8_test: Score = None
    before: Before | None = None
    spent: Mapping[str, Positive] = field(default_factory=dict)
    size: Count | None = None
    file_size: Count | None = None
    examples: Mapping[str, Count] = field(default_factory=dict)

    @property
    def total_seconds(self) -> float:
        """Seconds of everything: training, measuring and writing."""
        return sum(self.spent.values()) or self.seconds

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should not overlook: a file that is larger than the limit on `size`."""
        file = self.file_size
        return tuple(
            f"the exported file has {show(file, 'B')}, more than the {show(budget.maximum, 'B')} of the budget on size "
            "that counts weights and buffers alone; limit file_size if the file has to fit"
            for budget in self.budgets
            if budget.cost == "size" and file is not None and file > budget.maximum
        )

    @property
    def met(self) -> bool:
        """Whether every budget is met."""
        return all(budget.met for budget in self.budgets)

    def cost(self, name: str) -> float | None:
        """What the network costs: under one of its budgets, or as one of the counts that every summary has."""
        found = [budget.value for budget in self.budgets if budget.cost == name]
        counts = {"macs": float(self.macs), "params": float(self.params)}
        return found[0] if found else counts.get(name)

    def with_test(
        self, score: float | None, mean_iou: float | None = None, int8: float | None = None, examples: int = 0
    ) -> Summary:
        """The same run with another score on test data, of so many examples, or with none."""
        counts = {**self.examples, "test": examples}
        return dataclasses.replace(
            self, test_score=score, test_mean_iou=mean_iou, int8_test=int8, examples=counts if examples else {}
        )

    def scores(self) -> dict[str, str]:
        """The scores that are known, for people: `{"validation": "91.30%", …}`."""
        known = {"validation": self.validation_score, "test": self.test_score}
        return {part: self.metric.show(score) for part, score in known.items() if score is not None}

    def table(self) -> list[tuple[str, str]]:
        """What a person wants to know, line by line."""
        kept = [(b.text or b.cost, f"{show(b.value, b.unit)}{'' if b.met else ', NOT MET'}") for b in self.budgets]
        scores = [(f"{part} {self.metric.label}", text) for part, text in self.scores().items()]
        sizes = [("multiply-adds", show(self.macs, "macs")), ("parameters", show(self.params, "params")), *self.files()]
        notes = [("note", warning) for warning in self.warnings]
        times = [(name, f"{seconds:.0f} s") for name, seconds in self.spent.items()]
        return [*kept, *scores, *sizes, ("edges", str(len(self.architecture))), *(times or [self._time()]), *notes]

    def files(self) -> list[tuple[str, str]]:
        """`size` and `file_size` where they are known and no budget says them already."""
        known = {"size": self.size, "file_size": self.file_size} if self.file_size is not None else {}
        told = [budget.cost for budget in self.budgets]
        return [(name, show(value, "B")) for name, value in known.items() if value is not None and name not in told]

    def _time(self) -> tuple[str, str]:
        return "time", f"{self.seconds:.0f} s"

    def __str__(self) -> str:
        rows = self.table()
        width = max(len(name) for name, _ in rows)
        return "\n".join([self.run, *(f"{name:<{width}}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        return table(self.table(), caption=self.run)

    def to_json(self) -> dict[str, Any]:
        """A plain value for `summary.json`; a mean intersection over union or an int8 score only if it is known."""
        value: dict[str, Any] = plain(self)
        optional = [
            name
            for name in value
            if name.endswith(("_mean_iou", "size")) or name.startswith("int8_") or name == "before"
        ]
        known = {name: item for name, item in value.items() if item is not None or name not in optional}
        if self.metric == MetricDescription():
            del known["metric"]
        for name in ("spent", "examples"):
            if not known[name]:
                del known[name]
        return {_stored_name(name, self.metric.name): item for name, item in known.items()}

    @staticmethod
    def from_json(value: Any, where: str) -> Summary:
        """The summary in a plain value; `where` begins the message about a field that is wrong."""
        return typed(_with_scores(value), Summary, where)


@dataclass(frozen=True)
class DataDescription:
    """What a run was trained on, as `data.json` holds it.

    Attributes:
        name: The data set as the user named it; `own` if they were given from Python.
        task: `classification`, `segmentation`, or `own` with a loss from Python.
        classes: The names of the classes; empty if there are none.
        input_shape: The shape of one input.
        scaling: `[-1,1]` if pixels from 0 to 255 are scaled to that range, as a part of the network; else `none`.
        metric: What the scores of the run measure.
        input_dtype: The type of the inputs, as torch calls it.
    """

    name: str
    task: str
    classes: tuple[str, ...]
    input_shape: tuple[Side, ...]
    scaling: Literal["[-1,1]", "none"] = "none"
    metric: MetricDescription = field(default_factory=MetricDescription)
    input_dtype: InputType = "float32"

    def to_json(self) -> dict[str, Any]:
        """A plain value for `data.json`."""
        value: dict[str, Any] = plain(self)
        return value

    @staticmethod
    def from_json(value: Any, where: str) -> DataDescription:
        """The description in a plain value. Names of classes are shown in many places, so they are cleaned here."""
        found = typed(value, DataDescription, where)
        return dataclasses.replace(found, classes=tuple(printable(name) for name in found.classes))


@dataclass(frozen=True)
class Origin:
    """How a run was started, as `config.json` holds it.

    Attributes:
        config: The settings; `runs.config` makes a `Config` of them.
        command: The command line.
        version: The version of budgetnet.
        machine: The processor, its cores, the system.
        versions: The versions of Python and of the packages that matter.
    """

    config: Mapping[str, Any]
    command: str = ""
    version: str | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain value for `config.json`."""
        value: dict[str, Any] = plain(self)
        return value

    @staticmethod
    def from_json(value: Any, where: str) -> Origin:
        """The origin in a plain value."""
        return typed(value, Origin, where)


@dataclass(frozen=True)
class Candidate:
    """An architecture that a search evaluated on shared weights: a line of `archive.jsonl`.

    Attributes:
        kept: The kept edges, eight to a byte, in hexadecimal digits.
        phase: The phase in which it was evaluated.
        epoch: The epoch of that phase.
        costs: Its cost under each budget.
        feasible: Whether it meets every budget.
        validation_score: The metric on a part of the validation data; None if it was not finite.
        validation_loss: The loss on the same.
    """

    kept: str
    phase: str
    epoch: int
    costs: Mapping[str, float]
    feasible: bool
    validation_score: Score = None
    validation_loss: Score = None

    @staticmethod
    def from_json(value: Any, where: str, metric: str = ACCURACY) -> Candidate:
        """The candidate in a plain value, whose score is stored under the name of the metric."""
        return typed(_with_scores(value, metric), Candidate, where)


def _stored_name(field_name: str, metric: str) -> str:
    """`validation_score` is stored under the name of the metric."""
    part, _, what = field_name.partition("_")
    return f"{part}_{metric}" if part in PARTS and what == "score" else field_name


def _with_scores(value: Any, metric: str | None = None) -> Any:
    """A stored value with its scores under the names of the fields."""
    if not isinstance(value, dict):
        return value
    about = value.get("metric")
    said = about.get("name") if isinstance(about, dict) else None
    name = metric or (said if isinstance(said, str) else ACCURACY)
    scores = {f"{part}_score": value[f"{part}_{name}"] for part in PARTS if f"{part}_{name}" in value}
    return {**value, **scores}
