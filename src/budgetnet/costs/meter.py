"""`Meter`: evaluates a cost on gates, once per distinct live architecture, or by drawing if the cost is random."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from budgetnet.costs.base import Cost, check_value
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.errors import user_code
from budgetnet.network.graph import Architecture

CACHED = 1 << 18
"""Architectures remembered before the cache starts anew: about 50 MB for the largest built-in space."""

QUANTILE_DRAWS = 60
"""Evaluations behind one sample of a quantile during the search: the 0.95 quantile is then their fourth largest."""

SAME = 1e-9
"""The relative difference between two values of an exact cost that rounding explains."""


class Meter:
    """A cost as a search asks for it: on gates, with a cache, and with a charge for gates that do not connect.

    Args:
        cost: The cost.
        own: Whether the cost is a user's own code, whose errors are told in one sentence.
        example: The batch that stands for the data where a cost depends on a batch and none is given.
    """

    def __init__(self, cost: Cost, own: bool = False, example: Any = None) -> None:
        self.cost = cost
        self.own = own
        self.graph = cost.graph
        self.example = example
        self.until = math.inf
        """When, by `time.monotonic`, a user's own cost stops being asked by `evaluate`, since a time limit is near."""
        self.seconds = 0.0
        """Seconds that were spent on measurements and draws so far."""
        self._known: dict[bytes, float] = {}

    def __repr__(self) -> str:
        return f"Meter({self.name})"

    @property
    def name(self) -> str:
        """The cost's text."""
        return self.cost.name

    @property
    def unit(self) -> str:
        """The cost's base unit."""
        return self.cost.unit

    @property
    def stochastic(self) -> bool:
        """Whether two evaluations may differ by chance."""
        return self.cost.stochastic

    @property
    def takes_batch(self) -> bool:
        """Whether the cost depends on a batch of data."""
        return self.cost.takes_batch

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The cost of one architecture; the mean, or the quantile asked for, of repeated draws if it is stochastic."""
        if self.stochastic:
            return self.evidence(architecture, () if batch is None else (batch,)).value
        with self._unhurried():
            return float(self.evaluate(architecture.gates()[None], batch)[0])

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """What a budget is held against.

        Args:
            architecture: The architecture; one that does not connect is charged as the full network.
            batches: Batches that stand for the data; the example does if there are none.

        Returns:
            The exact value, a measurement, or the 95 % bound of a random cost over draws and batches.
        """
        if self.cost.exact:
            value = self(architecture)
            return Evidence(value, value, {"method": "exact"})
        with self._user_code(), self._timed():
            charged = architecture if architecture.connected else self.graph.full
            return self._checked(self.cost.evidence(charged, batches if len(batches) else (self.example,)))

    def refresh(self, gates: Tensor) -> Mapping[str, float]:
        """Measures some of these architectures and corrects the estimates by them; returns their errors by name."""
        with self._timed():
            return self.cost.refresh(self.graph.live(gates))

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """The cost's own evidence for a certificate; it must agree with what an exact cost said before.

        Args:
            deliverable: What is handed over.
            maximum: The budget.

        Returns:
            Evidence that was made for this certificate, never from the cache.
        """
        with self._user_code():
            if self.takes_batch and not len(deliverable.batches):
                deliverable = replace(deliverable, batches=(self.example,))
            evidence = self._checked(self.cost.certify(deliverable, maximum))
        before = self(deliverable.architecture) if self.cost.exact else evidence.value
        if math.isclose(before, evidence.value, rel_tol=SAME):
            return evidence
        bound = max(before, evidence.upper_bound)
        return replace(evidence, upper_bound=bound, how={**evidence.how, "value_before": before}, repeatable=False)

    @property
    def full(self) -> float:
        """The cost of the full super network: what an inconsistent sample is charged, and what shares refer to."""
        return float(self.cost(self.graph.full)) if self.cost.measured else self._constant_full

    @cached_property
    def _constant_full(self) -> float:
        return self(self.graph.full)

    def evaluate(self, gates: Tensor, batch: Any = None) -> Tensor:
        """The costs of rows of gates.

        Args:
            gates: Gates (n × edges); a row that does not connect is charged the cost of the full network, and so is one
                that a user's own cost was not asked about before `until`.
            batch: Inputs, for a cost that depends on them; the example if none are given.

        Returns:
            A cost per row, float64.
        """
        live = self.graph.live(gates)
        connected = live.any(1)
        costs = torch.empty(len(live), dtype=torch.float64)
        costs[connected] = self._of_live(live[connected], batch)
        if not connected.all():
            costs[~connected] = self(self.graph.full, batch) if self.takes_batch else self.full
        return costs

    def _of_live(self, live: Tensor, batch: Any) -> Tensor:
        if self.stochastic or self.takes_batch:
            batch = self.example if batch is None else batch
            return self._in_time(live, lambda row: self._draw(self.graph.architecture(row), batch))
        if self.cost.measured:  # an estimate changes with every refresh, so it is not remembered
            return self._compute(live)
        keys = [row.tobytes() for row in np.packbits(live.numpy(), axis=1)]
        if len(self._known) > CACHED:
            self._known.clear()
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if math.isfinite(self.until) and self.own:
            for key, place in new.items():
                if self.late:
                    break
                self._known[key] = float(self._compute(live[place : place + 1])[0])
        elif new:
            self._known.update(zip(new, self._compute(live[list(new.values())]).tolist(), strict=True))
        missing = 0.0 if all(key in self._known for key in new) else self.full
        return torch.tensor([self._known.get(key, missing) for key in keys], dtype=torch.float64)

    def _in_time(self, live: Tensor, draw: Callable[[Tensor], float]) -> Tensor:
        """A draw for each row, and the full network's cost for those that there is no time for."""
        values = []
        for row in live:
            if self.late:
                break
            with self._user_code():
                values.append(draw(row))
        missing = len(live) - len(values)
        return torch.tensor(values + [self.full] * missing if missing else values, dtype=torch.float64)

    @property
    def hurried(self) -> bool:
        """Whether a user's own cost is only asked for a while."""
        return self.own and math.isfinite(self.until)

    @property
    def late(self) -> bool:
        """Whether a user's own cost is no longer asked by `evaluate`."""
        return self.own and time.monotonic() > self.until

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - begun

    @contextmanager
    def _unhurried(self) -> Iterator[None]:
        """Asks whatever the time: for the few values that a result stands on."""
        until, self.until = self.until, math.inf
        try:
            yield
        finally:
            self.until = until

    def _draw(self, architecture: Architecture, batch: Any) -> float:
        """One draw; where a quantile is asked for, that of a few draws, since a single one is about the mean."""
        arguments = (architecture, batch) if self.takes_batch else (architecture,)
        if self.cost.quantile is None:
            return self.cost(*arguments)
        draws = sorted(self.cost(*arguments) for _ in range(QUANTILE_DRAWS))
        return draws[math.ceil(self.cost.quantile * QUANTILE_DRAWS) - 1]

    def _compute(self, live: Tensor) -> Tensor:
        with self._user_code():
            values = self.cost.evaluate(live).double()
        for value in values[~(values.isfinite() & (values >= 0))].tolist():
            check_value(value, self.name)
        return values

    def _checked(self, evidence: Evidence) -> Evidence:
        check_value(evidence.value, self.name)
        return evidence

    def _user_code(self) -> AbstractContextManager[None]:
        return user_code(f"the cost {self.name}", "; correct it") if self.own else nullcontext()
