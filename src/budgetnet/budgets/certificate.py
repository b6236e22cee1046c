"""The certificate: every budget measured on what is handed over, with how, on which machine, and for which files."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

from torch import fx

from budgetnet.costs import Meter, units
from budgetnet.costs.deliverable import Deliverable
from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.files import sha256
from budgetnet.export.formats import FORMATS
from budgetnet.naming.files import read_bytes
from budgetnet.naming.html import table, text
from budgetnet.naming.values import Range, plain, printable, typed
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

Amount = Annotated[float, Range(0)]
"""A cost in its base unit; infinity is an amount that no budget admits."""


class Limit(Protocol):
    """What is certified of a budget: its text, its cost and its maximum."""

    @property
    def text(self) -> str:
        """As it was written."""
        ...

    @property
    def meter(self) -> Meter:
        """The cost."""
        ...

    @property
    def maximum(self) -> float:
        """In the cost's base unit."""
        ...


@dataclass(frozen=True, kw_only=True)
class BudgetEntry:
    """One budget of a certificate.

    Attributes:
        cost: The cost's text, such as `latency(batch=1)`.
        text: The budget as it was written.
        unit: The base unit of all the numbers.
        maximum: The budget.
        measured: The cost of what was handed over.
        upper_bound: What the budget is held against: the value itself, or a 95 % bound; None if there is no number.
        extracted: The cost of the extracted network, where that form was looked at.
        exported: The cost of the exported file, where that form was looked at.
        how: How the cost was found: the method and its settings.
        holds: Whether the bound is within the budget.
    """

    cost: str
    text: str
    unit: str
    maximum: Amount
    measured: Amount
    upper_bound: Amount | None
    extracted: Amount | None = None
    exported: Amount | None = None
    how: Mapping[str, Any] = field(default_factory=dict)
    holds: bool

    def show(self) -> str:
        """A line for people."""
        bound = f", {self.bound}" if self.bound else ""
        found = f"{printable(self.cost)} <= {self._show(self.maximum)}: {self._show(self.measured)}"
        return f"{self._verdict}: {found}{bound} [{self.told}]"

    def row(self) -> tuple[str, ...]:
        """The same for a table: verdict, budget, maximum, measured, bound, method."""
        return (self._verdict, self.text, self._show(self.maximum), self._show(self.measured), self._bound, self.told)

    @property
    def _verdict(self) -> str:
        return "holds" if self.holds else "does not hold"

    @property
    def _bound(self) -> str:
        return "nothing known" if self.upper_bound is None else self._show(self.upper_bound)

    @property
    def bound(self) -> str:
        """The upper end of what was measured, for people; empty if the value is exact."""
        return "" if self.upper_bound == self.measured else f"at most {self._bound} (95 %)"

    @property
    def told(self) -> str:
        """How it was measured, for people."""
        return ", ".join(f"{key} {printable(self.how[key])}" for key in _TOLD if key in self.how)

    def _show(self, value: float) -> str:
        return units.show(value, self.unit)


_TOLD = (
    *("method", "network", "runtime", "precision", "provider", "device", "target", "processor", "threads", "batch"),
    *("samples", "value_before"),
)
"""What of `how` is printed; the rest is in the file."""


@dataclass(frozen=True)
class Int8Score:
    """What quantisation does to the score of a network, on validation data.

    Attributes:
        fp32: The score of the network.
        int8: The score of its int8 file.
        drop: By how many hundredths of the score's unit (points of an accuracy) the file is worse.
        allowed: The largest drop that was allowed.
        holds: Whether the drop is within that.
    """

    fp32: Annotated[float, Range(nan=True)]
    int8: Annotated[float, Range(nan=True)]
    drop: Annotated[float, Range(nan=True)]
    allowed: Amount
    holds: bool

    def show(self) -> str:
        """A line for people."""
        verdict = "holds" if self.holds else "does not hold"
        return (
            f"{verdict}: int8 drop <= {self.allowed:g} points: {self.drop:.2f} "
            f"(validation {self.fp32:.4g} as fp32, {self.int8:.4g} as int8)"
        )


@dataclass(frozen=True)
class Certificate:
    """What was measured on a network that was handed over; `certificate.json` of a run folder.

    Attributes:
        holds: Whether every budget holds.
        budgets: An entry for each budget.
        machine: The processor, cores and threads that it was measured on.
        versions: Python and the packages.
        checksums: SHA-256 of the files that the certificate is for, by name.
        int8: The score of the int8 file beside that of the network, if a budget is about that file.
    """

    holds: bool
    budgets: tuple[BudgetEntry, ...]
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    int8: Int8Score | None = None

    @staticmethod
    def from_json(value: Any, where: str = "the certificate") -> Certificate:
        """Checks a plain value, field by field.

        Args:
            value: What a JSON parser returned, of this or an earlier version.
            where: The file that the value is from, for messages.

        Returns:
            The certificate.

        Raises:
            UserError: A field has the wrong type or range; the message names it.
        """
        return typed(value, Certificate, where, "restore the file, or certify again")

    def to_json(self) -> dict[str, Any]:
        """A plain value for a JSON file: the inverse of `from_json`."""
        value: dict[str, Any] = plain(self)
        if self.int8 is None:
            del value["int8"]
        return value

    def show(self) -> str:
        """A certificate for people: a line per budget, then the machine and the verdict."""
        lines = [entry.show() for entry in self.budgets]
        if self.int8 is not None:
            lines.append(self.int8.show())
        return "\n".join([*lines, *self.closing])

    @property
    def closing(self) -> tuple[str, str]:
        """The machine and the verdict, for people."""
        return self._measured_on, self._verdict

    def _repr_html_(self) -> str:
        """For notebooks."""
        head = ("", "budget", "maximum", "measured", "at most (95 %)", "how")
        notes = [self.int8.show()] if self.int8 is not None else []
        lines = "".join(f"<div>{text(line)}</div>" for line in [*notes, self._measured_on])
        return table((entry.row() for entry in self.budgets), head, self._verdict) + lines

    @property
    def _verdict(self) -> str:
        return "the certificate holds" if self.holds else "the certificate does not hold"

    @property
    def _measured_on(self) -> str:
        processor, cores = (printable(self.machine.get(key, "unknown")) for key in ("processor", "cores"))
        torch = printable(self.versions.get("torch", "unknown"))
        accelerators = dict.fromkeys(str(e.how["accelerator"]) for e in self.budgets if "accelerator" in e.how)
        beside = "".join(f"{printable(name)} beside " for name in accelerators)
        return f"measured on {beside}{processor}, {cores} cores, torch {torch}"


def certify(
    net: SuperNetwork,
    architecture: Architecture,
    budgets: Sequence[Limit],
    *,
    environment: Mapping[str, Any],
    network: fx.GraphModule | None = None,
    description: Description | None = None,
    onnx: bytes | None = None,
    batches: Sequence[Any] = (),
    checksums: Mapping[str, str] | None = None,
    int8: bytes | None = None,
    int8_score: Int8Score | None = None,
) -> Certificate:
    """Measures every budget on the extracted network and on its exported file.

    Args:
        net: The super network.
        architecture: The architecture that was kept of it.
        budgets: The budgets.
        environment: The machine and the versions.
        network: The trained network. Costs do not depend on weights: without it, one is extracted.
        description: What the exported file says about itself.
        onnx: The exported file, if there is one already.
        batches: Batches that stand for the data where a cost depends on it.
        checksums: Checksums of the files that the certificate is for.
        int8: The int8 file, for budgets that are about it.
        int8_score: What quantisation does to the score, where that is known.

    Returns:
        The certificate; it holds if every budget does, and the int8 file is not much worse than the network.
    """
    network = (extract(net, architecture) if network is None else copy.deepcopy(network)).cpu().eval()
    described = description or Description(net.name, architecture.to_json(), net.input_shape, ())
    described = replace(described, certificate={})  # room for the new one is set aside
    pack = partial(FORMATS["onnx"].pack, network, described)
    final = onnx is not None or described.precision == "int8"
    pack_int8 = None if int8 is None else (lambda: int8)
    deliverable = Deliverable(architecture, network, (lambda: onnx) if onnx else pack, final, batches, pack_int8)
    entries = tuple(_entry(budget, deliverable) for budget in budgets)
    holds = all(entry.holds for entry in entries) and (int8_score is None or int8_score.holds)
    about = environment["machine"], environment["versions"], dict(checksums or {})
    return Certificate(holds, entries, *about, int8_score)


def _entry(budget: Limit, deliverable: Deliverable) -> BudgetEntry:
    evidence = budget.meter.certify(deliverable, budget.maximum)
    forms: dict[str, float] = {evidence.how.get("network", "extracted"): evidence.value}
    with contextlib.suppress(UserError):  # without its extra, the other form is not measured
        forms |= budget.meter.cost.other_form(deliverable)
    bound = evidence.upper_bound
    return BudgetEntry(
        cost=budget.meter.name,
        text=budget.text,
        unit=budget.meter.unit,
        maximum=budget.maximum,
        measured=evidence.value,
        upper_bound=bound if bound >= 0 else None,  # None for a bound that is not a number
        extracted=forms.get("extracted"),
        exported=forms.get("exported"),
        how={"network": "extracted", **evidence.how},
        holds=evidence.within(budget.maximum),
    )


def file_checksums(paths: Sequence[Path]) -> dict[str, str]:
    """Checksums of the files that a certificate is for, by name.

    Args:
        paths: The files.

    Returns:
        SHA-256 by file name.
    """
    return {path.name: sha256(read_bytes(path)) for path in paths}
