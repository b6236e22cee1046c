"""`peak_memory(target=…)`: resident bytes that loading and running the exported network adds on a device.

They are measured there, in a fresh process each time. While searching, a straight line through measured networks
stands in, over the analysis that `peak_memory` makes without a device: a runtime has costs of its own, but more
activations and weights take more memory on it too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from budgetnet.costs.base import Cost
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.latency.predictor import random_architectures
from budgetnet.costs.latency.remote import Target
from budgetnet.costs.latency.runtimes import OnnxRuntime, check, reference_file
from budgetnet.costs.latency.samples import gates_of, key_of
from budgetnet.export.pieces import Pieces
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

SAMPLES = 10
"""Networks measured for the line."""
REPEATS = 3
"""Measurements of one network; the largest bounds it."""
HEADROOM = 0.05
"""The least that a chosen network stays below its budget."""


class TargetMemory(Cost):
    """Peak memory of exported networks on a device that runs `budgetnet meter`.

    Args:
        net: The super network.
        analysis: The cost that knows peak memory without a device.
        url: The address of the meter.
        batch: Inputs at a time.
    """

    measured = True

    def __init__(self, net: SuperNetwork, analysis: Cost, url: str, batch: int) -> None:
        check(batch, 1)
        super().__init__(net.graph)
        self.net, self.analysis, self.batch = net, analysis, batch
        self.target = Target(url)
        self._pieces = Pieces()
        self._line: list[float] | None = None
        self._margin = HEADROOM
        self._evidence: dict[str, list[float]] = {}

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The estimated bytes of one architecture."""
        return float(self._estimate(architecture.live().gates()[None])[0])

    def evaluate(self, live: Tensor) -> Tensor:
        """The bound that `evidence` is expected to find for each row of live gates."""
        return self._estimate(live) * (1 + self._margin)

    def smallest(self) -> Architecture | None:
        """The architecture that is smallest by analysis."""
        return self.analysis.smallest()

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """Measures an architecture's exported network, once."""
        self._fitted()
        found = self._measured(architecture)
        value, bound = float(np.median(found)), max(found)
        how = {"method": "resident bytes on the target", "target": self.target.url, "batch": self.batch}
        return Evidence(value, bound, how, cautious=max(bound, value * (1 + HEADROOM)))

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """Measures the file that is handed over, in fresh processes."""
        values, machine = self._ask(deliverable.onnx, 2 * REPEATS)
        how = {
            "method": "resident bytes on the target, the largest of all",
            "network": "exported",
            "runtime": "onnx",
            "target": self.target.url,
            "processor": machine.get("processor", "unknown"),
            "machine": dict(machine),
            "batch": self.batch,
            "samples": len(values),
        }
        return Evidence(float(np.median(values)), max(values), how)

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """The error of the line on one of these networks, which is added to what it is fitted to."""
        rows = live[live.any(1)][:1]
        if not len(rows):
            return {}
        expected = float(self._estimate(rows)[0])
        found = float(np.median(self._measured(self.net.graph.architecture(rows[0]))))
        self._fit()
        return {"error": abs(expected / found - 1) if found else 0.0, "measured": 1.0}

    def state_dict(self) -> dict[str, Any]:
        """The measurements, and the line through them."""
        return {"line": self._line, "margin": self._margin, "evidence": dict(self._evidence)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        self._line, self._margin = state["line"], state["margin"]
        self._evidence = {key: list(values) for key, values in state["evidence"].items()}

    def _estimate(self, live: Tensor) -> Tensor:
        base, slope = self._fitted()
        # below the smallest network that was measured, the line may go below zero
        return (base + slope * self.analysis.evaluate(live)).clamp_min(0)

    def _fitted(self) -> list[float]:
        if self._line is None:
            graph = self.net.graph
            for architecture in [graph.full, *random_architectures(graph, SAMPLES - 1, seed=0)]:
                self._measured(architecture)
            self._fit()
        assert self._line is not None
        return self._line

    def _fit(self) -> None:
        """The line of least squares through the medians, rising; the margin is twice the typical error."""
        rows = torch.stack([gates_of(key, len(self.net.graph.edges)) for key in self._evidence])
        known = self.analysis.evaluate(rows).numpy()
        found = np.array([np.median(values) for values in self._evidence.values()])
        slope = max(0.0, float(np.polyfit(known, found, 1)[0])) if np.ptp(known) > 0 else 0.0
        base = float(np.mean(found - slope * known))
        self._line = [base, slope]
        errors = np.abs((base + slope * known) / np.maximum(found, 1.0) - 1)
        self._margin = max(HEADROOM, 2 * float(np.median(errors)))

    def _measured(self, architecture: Architecture) -> list[float]:
        key = key_of(architecture)
        if key not in self._evidence:
            network: fx.GraphModule = extract(self.net, architecture).cpu().eval()
            model = OnnxRuntime().export(network, self.net.input_shape, self._pieces)
            self._evidence[key] = self._ask(model, REPEATS)[0]
        return self._evidence[key]

    def _ask(self, model: bytes, repeats: int) -> tuple[list[float], Mapping[str, Any]]:
        answers = [self.target.memory(model, reference_file(), batch=self.batch) for _ in range(repeats)]
        return [float(found) for found, _ in answers], answers[-1][1]
