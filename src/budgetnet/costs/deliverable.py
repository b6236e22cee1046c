"""What is handed over: the extracted network, and the file that is made from it. Certificates measure this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx

from budgetnet.errors import UserError
from budgetnet.network.graph import Architecture


@dataclass(frozen=True, eq=False)
class Deliverable:
    """An architecture, its network with its weights, and the bytes of its ONNX file, which are made when asked for."""

    architecture: Architecture
    network: fx.GraphModule
    pack: Callable[[], bytes]
    final: bool = False
    """Whether the file is as it was handed over, its certificate in it."""
    batches: Sequence[Any] = ()
    """Batches that stand for the data, for costs that depend on them."""

    pack_int8: Callable[[], bytes] | None = None
    """Makes the int8 file, calibrated on training data; not given where there are none."""

    @cached_property
    def onnx(self) -> bytes:
        """The exported network."""
        return self.pack()

    @cached_property
    def int8(self) -> bytes:
        """The exported network, quantised to int8."""
        if self.pack_int8 is None:
            raise UserError("an int8 file needs training data to be calibrated on; certify the run that has them")
        return self.pack_int8()

    def file(self, precision: str) -> bytes:
        """The exported network in one of the two precisions."""
        return self.int8 if precision == "int8" else self.onnx
