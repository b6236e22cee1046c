"""What is handed over: the extracted network, and the file that is made from it. Certificates measure this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import fx

from budgetnet.costs.evidence import Evidence
from budgetnet.network.graph import Architecture


@dataclass(frozen=True, eq=False)
class Deliverable:
    """An architecture, its network with its weights, and the bytes of its ONNX file, which are made when asked for."""

    architecture: Architecture
    network: fx.GraphModule
    pack: Callable[[], bytes]
    final: bool = False
    """Whether the file is as it was handed over, its certificate in it."""

    @cached_property
    def onnx(self) -> bytes:
        """The exported network."""
        return self.pack()


@runtime_checkable
class Certifiable(Protocol):
    """A cost that is measured on what is handed over, however often the architecture was measured before."""

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """Measures for a certificate; may go on for longer where the maximum seems not to hold."""
        ...


@runtime_checkable
class HasTwoForms(Protocol):
    """A cost that differs between the extracted and the exported network."""

    def beside(self, deliverable: Deliverable) -> dict[str, float]:
        """The cost of the form that the verdict is not about, as `extracted` or `exported`."""
        ...
