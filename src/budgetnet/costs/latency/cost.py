"""`latency` and `latency_p95`: seconds of the network that is handed over, at a batch size, thread count and runtime.

`latency` is the median of the paired ratios to a fixed reference network times the reference's quiet time. A budget
holds when the upper end of the 95 % bootstrap interval is within it. While searching, a predictor stands in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from budgetnet.costs.base import Cost, least_path
from budgetnet.costs.deliverable import Deliverable
from budgetnet.costs.evidence import Evidence
from budgetnet.costs.latency import predictor, runtimes, timing
from budgetnet.costs.latency.runtimes import Runtime
from budgetnet.costs.latency.samples import gates_of, key_of, random_inputs, roughly_int8
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError
from budgetnet.export.int8 import check_precision
from budgetnet.export.pieces import Pieces
from budgetnet.network.extract import extract
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Effort:
    """How long one measurement takes, and in how many fresh rounds."""

    seconds: float
    rounds: int


FIT = Effort(0.2, 2)
"""For the predictor: many networks, whose errors average out."""
CANDIDATE = Effort(0.8, 4)
"""For a network that may be chosen."""
CERTIFY = Effort(2.0, 6)
"""For a certificate, which is repeated while it is undecided."""
PATIENCE = 20.0
"""Seconds that a certificate waits for a quiet machine before it says that a budget does not hold."""
HOPELESS = 3.0
"""Times the budget from which waiting will not help."""

WHOLE_SAMPLES = 16
"""Networks measured for the first fit if each is exported as a whole, which takes a second: a converted model's.

Fewer leave the costs of a ResNet's bundles open; `benchmarks.predictor_error` has what these leave."""
INT8_SAMPLES = 12
"""Networks measured for the first fit if each has to be quantised, which takes about a second."""
DIFFERENCE = {"fp32": 1e-3, "int8": 0.2}
"""How far outputs on a runtime may be from the source's, relative to the largest, before a certificate is refused.

Runtimes round int8 sums each in their own way; what int8 does to the accuracy is measured on data.
"""
COMPARED = 16
"""Random inputs on which a certificate compares outputs."""
CONTROLS = 5
"""Times that one network is measured among the others, to see how far measurements of the same thing differ."""
HEADROOM = (0.03, 0.25)
"""The least and the most that a chosen network stays below its budget, so that a later measurement holds too."""
TOLERATED = 0.05
"""The predictor's error on fresh networks above which it is fitted again."""
WORST_ERROR = 0.15
"""The most of its own error that a prediction is raised by."""


class Latency(Cost):
    """Predicts for gates, measures architectures, and certifies networks. All that it learnt is in `state_dict()`.

    Args:
        net: The super network.
        runtime: What runs the networks, here or on a target.
        batch: Inputs at a time.
        threads: Threads of the runtime.
        tail: Whether the cost is the 95th percentile.
        precision: fp32, or int8 for the quantised file.
    """

    measured = True

    def __init__(
        self, net: SuperNetwork, runtime: Runtime, batch: int, threads: int, tail: bool, precision: str = "fp32"
    ) -> None:
        runtimes.check(batch, threads)
        check_precision(precision)
        if precision == "int8" and not runtime.onnx:
            raise UserError(
                f"runtime={runtime.name} runs no int8 files; use runtime=onnx or openvino, or precision=fp32"
            )
        super().__init__(net.graph)
        _check_inputs(net, runtime, precision)
        self.net = net
        self.batch, self.threads, self.runtime, self.tail = batch, threads, runtime, tail
        self.precision = precision
        self._pieces = Pieces()
        self._ratios: dict[str, float] = {}
        self._evidence: dict[str, Evidence] = {}
        self._coefficients: Array | None = None
        self._scale = 0.0
        self._headroom = 0.0
        self._error = 0.0

    def __call__(self, architecture: Architecture, batch: Any = None) -> float:
        """The predicted seconds of one architecture."""
        return float(self.predict(architecture.live().gates()[None])[0])

    def predict(self, live: Tensor) -> Array:
        """The predicted seconds of each row of live gates."""
        seconds: Array = self._features(live) @ self._fitted() * self._scale
        return seconds

    def evaluate(self, live: Tensor) -> Tensor:
        """The bound that `evidence` is expected to find for each row: the prediction plus its error and the headroom.

        So a network that fills a budget by this number will in all likelihood hold it when it is measured.
        """
        predicted = self.predict(live)
        return torch.from_numpy(predicted * (1 + self._headroom + self._error))

    def smallest(self) -> Architecture | None:
        """The connected architecture with the least predicted latency."""
        return least_path(self.graph, self._features.path_weights(self._fitted()))

    def evidence(self, architecture: Architecture, batches: Sequence[Any] = ()) -> Evidence:
        """Measures the extracted network, once; the bound has room for the spread between measurements."""
        self._fitted()
        key = key_of(architecture)
        if key not in self._evidence:
            series = self.series(architecture, CANDIDATE)
            self._ratios[key] = float(timing.ratio(series))
            self._evidence[key] = self._on_a_quiet_machine(series)
        found = self._evidence[key]
        cautious = max(found.upper_bound, found.value * (1 + self._headroom))
        return replace(found, how={**found.how, "headroom": self._headroom}, cautious=cautious)

    def refresh(self, live: Tensor) -> Mapping[str, float]:
        """Measures a few of these networks; fits again, with them, if the prediction was too far off."""
        sampled = {key_of(a): a for a in map(self.net.graph.architecture, live[live.any(1)])}
        count = 1 if self._exported_as_a_whole else self.runtime.fresh
        fresh = [a for key, a in sampled.items() if key not in self._ratios][:count]
        if not fresh:
            return {}
        predicted = self._features(torch.stack([a.gates() for a in fresh])) @ self._fitted()
        measured = np.array([float(timing.ratio(self.series(a, FIT))) for a in fresh])
        self._ratios.update(zip(map(key_of, fresh), measured.tolist(), strict=True))
        error = predictor.error(predicted, measured)
        self._error = min((self._error + error) / 2, WORST_ERROR)
        if error > TOLERATED:
            self._fit()
        return {"error": error, "measured": float(len(fresh)), "refitted": float(error > TOLERATED)}

    def certify(self, deliverable: Deliverable, maximum: float) -> Evidence:
        """Measures what is handed over, until the budget holds or patience ends; first, outputs are compared.

        That is the file for a runtime that runs files, else the network itself.
        """
        exported = self._exported(deliverable.network, deliverable)
        how = self._agreement(deliverable.network, exported)
        network = self._subject(exported)
        begin = time.monotonic()
        series = self._interleave(network, CERTIFY)
        evidence = self._judge(series)
        while self._undecided(evidence, maximum) and time.monotonic() - begin < PATIENCE:
            series = timing.join([series, self._interleave(network, CERTIFY)])
            evidence = self._judge(series)
        self._learn_from(key_of(deliverable.architecture), evidence)
        how |= {**evidence.how, "network": self.runtime.form, **self.runtime.about()}
        return Evidence(evidence.value, evidence.upper_bound, how)

    def other_form(self, deliverable: Deliverable) -> dict[str, float]:
        """The other form of the network, by its own runtime: for the certificate, not for its verdict."""
        here = self.runtime.name in ("onnx", "eager", "compile") and not self.runtime.about()
        if self.precision == "int8" or not here:
            return {}
        other: Runtime = runtimes.Eager() if self.runtime.name == "onnx" else runtimes.OnnxRuntime()
        twin = Latency(self.net, other, self.batch, self.threads, self.tail)
        network = twin._subject(twin._exported(deliverable.network, deliverable))
        return {other.form: float(twin._statistic(twin._interleave(network, CANDIDATE)))}

    @property
    def _exported_as_a_whole(self) -> bool:
        """Whether networks cannot be put together from pieces that were exported before."""
        return self.net.prelude is not None and self.runtime.form == "exported"

    @property
    def _elsewhere(self) -> bool:
        return isinstance(self.runtime, runtimes.OnTarget)

    def _agreement(self, network: fx.GraphModule, exported: Any) -> dict[str, Any]:
        """How far this runtime's outputs are from ONNX Runtime's on the same file, or from torch's."""
        if self._elsewhere or isinstance(self.runtime, runtimes.BenchProgram | runtimes.OnnxRuntime):
            return {}
        source: Runtime = runtimes.OnnxRuntime() if self.runtime.onnx else runtimes.Eager()
        images = random_inputs(self.net.inputs, COMPARED)
        with runtimes.user_errors(self.runtime), timing.torch_threads(self.threads):
            given = exported if self.runtime.onnx else network
            difference = self.runtime.compare(exported, source, given, images, self.threads)
        tolerated = DIFFERENCE[self.precision]
        # written so that a NaN does not pass
        if not difference <= tolerated:
            raise UserError(
                f"outputs on runtime={self.runtime.name} differ from the source's by {difference:.2g}, more than "
                f"{tolerated:g}; use another runtime or other layers"
            )
        return {"difference": difference}

    def _learn_from(self, key: str, certified: Evidence) -> None:
        """A certificate that came out worse than the measurement before it asks for more headroom from now on."""
        if key in self._evidence:
            worse = certified.upper_bound / self._evidence[key].value - 1
            self._headroom = float(np.clip(worse, self._headroom, HEADROOM[1]))

    @staticmethod
    def _undecided(evidence: Evidence, maximum: float) -> bool:
        return evidence.upper_bound > maximum and evidence.value < HOPELESS * maximum

    def series(self, architecture: Architecture, effort: Effort) -> Series:
        """Times of an architecture's network and of the reference."""
        return self._interleave(self._subject(self._exported(extract(self.net, architecture))), effort)

    def state_dict(self) -> dict[str, Any]:
        """Everything that was learnt, as JSON."""
        return {
            "ratios": dict(self._ratios),
            "evidence": {key: [e.value, e.upper_bound, dict(e.how)] for key, e in self._evidence.items()},
            "coefficients": None if self._coefficients is None else self._coefficients.tolist(),
            "scale": self._scale,
            "headroom": self._headroom,
            "error": self._error,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave."""
        self._ratios = dict(state["ratios"])
        self._evidence = {key: Evidence(*values) for key, values in state["evidence"].items()}
        self._coefficients = None if state["coefficients"] is None else np.array(state["coefficients"])
        self._scale, self._headroom, self._error = state["scale"], state["headroom"], state["error"]

    @cached_property
    def _features(self) -> predictor.Features:
        return predictor.features(self.net)

    @cached_property
    def _reference(self) -> runtimes.Subject:
        with runtimes.user_errors(self.runtime):
            return self.runtime.reference()

    def _fitted(self) -> Array:
        if self._coefficients is None:
            self._calibrate()
            self._error = min(self._fit(), WORST_ERROR)
        assert self._coefficients is not None
        return self._coefficients

    def _calibrate(self) -> None:
        """Measures networks of every density, and the full one several times among them as a control."""
        graph, count = self.net.graph, self.runtime.samples
        if self.precision == "int8":
            count = min(count, INT8_SAMPLES)
        if self._exported_as_a_whole:
            count = min(count, WHOLE_SAMPLES)
        samples = predictor.random_architectures(graph, count - 1, seed=0)
        turns = np.linspace(0, len(samples), CONTROLS).astype(int).tolist()
        controls: list[Series] = []
        quiets: list[float] = []
        full = self._subject(self._exported(extract(self.net, graph.full)))
        for turn, architecture in enumerate([*samples, None]):
            controls += [self._interleave(full, CANDIDATE) for _ in range(turns.count(turn))]
            if architecture is not None:
                series = self.series(architecture, FIT)
                self._ratios[key_of(architecture)] = float(timing.ratio(series))
                quiets.append(float(timing.quiet(series)))
        quiets += [float(timing.quiet(series)) for series in controls]
        ratio = float(np.median([timing.ratio(series) for series in controls]))
        self._ratios[key_of(graph.full)] = ratio
        self._scale = float(np.quantile(quiets, timing.QUIET))
        values = np.array([float(self._statistic(series)) for series in controls])
        if self.tail:
            self._scale = float(np.median(values)) / ratio
        self._headroom = float(np.clip(3 * np.std(np.log(values), ddof=1), *HEADROOM))

    def _fit(self) -> float:
        """Fits to everything measured; the error that is left, doubled, since networks not seen are harder."""
        rows = torch.stack([gates_of(key, len(self.net.graph.edges)) for key in self._ratios])
        measured = np.array(list(self._ratios.values()))
        counts = self._features(rows)
        self._coefficients = predictor.fit(counts, measured, self._features.work)
        return 2 * predictor.error(counts @ self._coefficients, measured)

    def _exported(self, network: fx.GraphModule, deliverable: Deliverable | None = None) -> Any:
        """What the runtime loads: the file that is handed over, or one of the same kind made for a measurement."""
        if deliverable is not None and self.runtime.onnx:
            return deliverable.file(self.precision)
        with runtimes.user_errors(self.runtime):
            exported = self.runtime.export(network.cpu().eval(), self.net.input_shape, self._pieces)
        return exported if self.precision == "fp32" else roughly_int8(exported, self.net.input_shape)

    def _subject(self, exported: Any) -> runtimes.Subject:
        with runtimes.user_errors(self.runtime):
            return self.runtime.subject(exported, random_inputs(self.net.inputs, self.batch))

    def _interleave(self, network: runtimes.Subject, effort: Effort) -> Series:
        """A series; without what other processes did to it, unless the tail is what is asked for."""
        reference = self._reference
        with runtimes.user_errors(self.runtime):
            series = self.runtime.measure(
                network, reference, threads=self.threads, seconds=effort.seconds, rounds=effort.rounds
            )
        return series if self.tail else series.calm()

    def _statistic(self, series: Series) -> Array:
        return timing.p95(series) if self.tail else timing.latency(series)

    def _judge(self, series: Series) -> Evidence:
        low, high = timing.interval(series, self._statistic)
        how = {
            "method": "95th percentile" if self.tail else "median ratio to the reference × its quiet time",
            "runtime": self.runtime.name,
            "precision": self.precision,
            "threads": self.threads,
            "batch": self.batch,
            "samples": len(series),
            "median": float(np.median(series.network)),
            "p95": float(timing.p95(series)),
            "ratio": float(timing.ratio(series)),
            "reference_quiet": float(timing.quiet(series)),
            "interval": [low, high],
        }
        return Evidence(float(self._statistic(series)), high, how)

    def _on_a_quiet_machine(self, series: Series) -> Evidence:
        """Against the quietest that the machine was in this process, not only in this series."""
        evidence = self._judge(series)
        factor = 1.0 if self.tail else self._scale / evidence.how["reference_quiet"]
        return Evidence(evidence.value * factor, evidence.upper_bound * factor, evidence.how)


def _check_inputs(net: SuperNetwork, runtime: Runtime, precision: str) -> None:
    """Refuses inputs that only some runtimes can be given."""
    alone = len(net.inputs.names) == 1 and net.inputs.dtypes[0] == torch.float32
    if alone or (precision == "fp32" and isinstance(runtime, runtimes.OnnxRuntime | runtimes.Eager)):
        return
    raise UserError(
        f"runtime={runtime.name} with precision={precision} takes one float32 input, and the network takes "
        f"{', '.join(net.inputs.names)}; use runtime=onnx or eager on this machine, with precision=fp32"
    )
