"""The certificate: every budget measured on what is handed over, with how, on which machine, and for which files."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import fx

from budgetnet.costs import Meter, units
from budgetnet.costs.deliverable import Deliverable
from budgetnet.errors import UserError
from budgetnet.export.description import Description
from budgetnet.export.files import sha256
from budgetnet.export.formats import FORMATS
from budgetnet.naming.files import read_bytes
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork


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
) -> dict[str, Any]:
    """Measures every budget on the extracted network and on its exported file; the certificate as JSON.

    `network` is the trained network (costs do not depend on weights: without it, one is extracted), `onnx` its exported
    file if there is one already, `batches` stand for the data where a cost depends on it, `checksums` are of the files,
    `environment` says on which machine and with which versions.
    """
    network = (extract(net, architecture) if network is None else copy.deepcopy(network)).cpu().eval()
    described = description or Description(net.name, architecture.to_json(), net.input_shape, ())
    described = replace(described, certificate={})  # room for the new one is set aside
    pack = partial(FORMATS["onnx"].pack, network, described)
    deliverable = Deliverable(architecture, network, (lambda: onnx) if onnx else pack, onnx is not None, batches)
    entries = [_entry(budget, deliverable) for budget in budgets]
    return {
        "holds": all(entry["holds"] for entry in entries),
        "budgets": entries,
        **environment,
        "checksums": dict(checksums or {}),
    }


def _entry(budget: Limit, deliverable: Deliverable) -> dict[str, Any]:
    evidence = budget.meter.certify(deliverable, budget.maximum)
    forms = {"extracted": None, "exported": None, evidence.how.get("network", "extracted"): evidence.value}
    with contextlib.suppress(UserError):  # without its extra, the other form is not measured
        forms |= budget.meter.cost.other_form(deliverable)
    return {
        "cost": budget.meter.name,
        "text": budget.text,
        "unit": budget.meter.unit,
        "maximum": budget.maximum,
        "measured": evidence.value,
        "upper_bound": evidence.upper_bound,
        **forms,
        "how": {"network": "extracted", **evidence.how},
        "holds": bool(evidence.within(budget.maximum)),
    }


def show(certificate: Mapping[str, Any]) -> str:
    """A certificate for people: a line per budget, then the machine and the verdict."""
    lines = [_line(entry) for entry in certificate["budgets"]]
    on = certificate["machine"]
    lines.append(f"measured on {on['processor']}, {on['cores']} cores, torch {certificate['versions']['torch']}")
    lines.append("the certificate holds" if certificate["holds"] else "the certificate does not hold")
    return "\n".join(lines)


def _line(entry: Mapping[str, Any]) -> str:
    maximum, measured, upper = (units.show(entry[key], entry["unit"]) for key in ("maximum", "measured", "upper_bound"))
    bound = "" if entry["upper_bound"] == entry["measured"] else f", at most {upper} (95 %)"
    verdict = "holds" if entry["holds"] else "does not hold"
    how = ", ".join(f"{key} {entry['how'][key]}" for key in _TOLD if key in entry["how"])
    return f"{verdict}: {entry['cost']} <= {maximum}: {measured}{bound} [{how}]"


_TOLD = ("method", "network", "runtime", "threads", "batch", "samples")
"""What of `how` is printed; the rest is in the file."""


def file_checksums(paths: Sequence[Path]) -> dict[str, str]:
    """Checksums of the files that a certificate is for, by name."""
    return {path.name: sha256(read_bytes(path)) for path in paths}
