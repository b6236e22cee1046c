"""What is handed over: the extracted network, and the file that is made from it. Certificates measure this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import fx

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

    @cached_property
    def onnx(self) -> bytes:
        """The exported network."""
        return self.pack()
