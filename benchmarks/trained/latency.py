"""The comparison under a limit on time: ONNX Runtime, one thread, batch 1, as a share of the full network's time.

This package gets the limit as its budget. The other tools know no time, so that what they are asked for, a share of the
multiply-adds, is bisected until the exported network is measured within the limit; tries that missed it are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from benchmarks.trained import ours, peers
from benchmarks.trained.ledger import Entry
from benchmarks.trained.macs import RATES, full_macs
from benchmarks.trained.study import NONE, SELF, Study
from budgetnet.costs.latency import timing
from budgetnet.costs.latency.runtimes import OnnxRuntime, Subject
from budgetnet.costs.latency.samples import random_images
from budgetnet.network.extract import extract

PART = "latency"
LIMITS = (0.4, 0.3, 0.6)
CONTESTANTS = ("ours", "magnitude", "uniform", "taylor", "ours-alone", "fastnas")
"""In the order of what they are worth."""
GRID = (*(round(0.95 - 0.05 * i, 2) for i in range(18)), *(round(0.09 - 0.01 * i, 2) for i in range(9)), 0.005)
"""Shares of the multiply-adds that a tool is asked for."""
SECONDS, ROUNDS = 2.0, 4
"""Of a measurement."""

Make = Callable[[float], nn.Module | None]
"""A network at a share of the multiply-adds; None if there is none."""


@dataclass(frozen=True, eq=False)
class Clock:
    """Measures networks against the full one: both run in turns, so that a busy machine slows both."""

    study: Study
    full: Subject

    @classmethod
    def of(cls, study: Study, seed: int) -> Clock:
        """With the trained network as the measure."""
        return cls(study, _subject(study, study.full(seed)))

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """The time of a network as a share of the full one's, with its 95 % interval."""
        subject = _subject(self.study, model)
        measured = OnnxRuntime().measure(subject, self.full, threads=1, seconds=SECONDS, rounds=ROUNDS)
        series = measured.calm()
        low, high = timing.interval(series, timing.ratio)
        return {"time": round(float(timing.ratio(series)), 4), "interval": [round(low, 4), round(high, 4)]}


def _subject(study: Study, model: nn.Module) -> Subject:
    """The exported network and an image."""
    model = model.cpu().eval()
    if not isinstance(model, fx.GraphModule):
        net = study.space(model)
        model = extract(net, net.graph.full).eval()
    runtime, shape = OnnxRuntime(), study.data.input_shape
    return runtime.subject(runtime.export(model, shape), random_images(1, shape))


@dataclass(frozen=True)
class Bisected:
    """The largest share whose network is within the limit, and all tries: the share, the time, its interval."""

    share: float | None
    tries: list[dict[str, Any]]

    @property
    def missed(self) -> int:
        """Tries that took longer than allowed."""
        return sum(not one["within"] for one in self.tries)


def bisect(make: Make, clock: Callable[[nn.Module], dict[str, Any]], limit: float, grid: Sequence[float]) -> Bisected:
    """Looks for the largest share of a falling grid whose network is measured within the limit."""
    tries: list[dict[str, Any]] = []
    low, high = 0, len(grid)
    while low < high:
        middle = (low + high) // 2
        model = make(grid[middle])
        if model is None:
            high = middle  # smaller ones are refused, too
            continue
        measured = clock(model)
        within = measured["time"] <= limit
        tries.append({"share": grid[middle], **measured, "within": within})
        low, high = (low, middle) if within else (middle + 1, high)
    held = [one["share"] for one in tries if one["within"]]
    return Bisected(max(held, default=None), tries)


def run(study: Study, limits: Sequence[float], seeds: Sequence[int], contestants: Sequence[str]) -> None:
    """All runs that the ledger does not have, seed by seed."""
    for seed in seeds:
        for limit in limits:
            for name in contestants:
                if name in ("ours", "ours-alone"):
                    search(study, limit, seed, SELF if name == "ours" else NONE)
                elif name == "uniform" or study.peers is not None:
                    tuned(study, name, limit, seed)


def search(study: Study, limit: float, seed: int, teacher: str) -> Entry:
    """This package's search with the limit as its budget."""
    how = ours.settings(study, teacher)
    known = study.known(part=PART, limit=limit, seed=seed, contestant="ours", teacher=teacher, **how)
    folder = study.out / f"latency-{teacher}-{limit:g}-{seed}"

    def make() -> dict[str, Any]:
        result, entry = ours.search(study, seed, f"latency<={100 * limit:g}%", teacher, folder)
        return {**entry, **Clock.of(study, seed)(result.model)}

    return study.ledger.run(known, make)


def tuned(study: Study, name: str, limit: float, seed: int) -> None:
    """Another way to a small network, bisected until it is fast enough and finished.

    A tool is finished at each learning rate with the first seed, then at the better one.
    """
    rates = RATES if name in peers.TOOLS else RATES[:1]
    found = {entry["lr"]: entry.get("validation", 0.0) for entry in _first(study, name, limit)}
    best = (max(found, key=found.__getitem__),) if set(found) == set(rates) else rates
    chosen: list[Bisected] = []
    for lr in best:
        known = study.known(part=PART, limit=limit, seed=seed, contestant=name, teacher=NONE, lr=lr)
        study.ledger.run(known, lambda lr=lr: _finish(study, name, limit, seed, lr, chosen))  # type: ignore[misc]


def _first(study: Study, name: str, limit: float) -> list[Entry]:
    """The entries of a contestant with the first seed that has any."""
    found = study.entries(part=PART, limit=limit, contestant=name, teacher=NONE)
    first = min((entry["seed"] for entry in found), default=None)
    return [entry for entry in found if entry["seed"] == first]


def _finish(study: Study, name: str, limit: float, seed: int, lr: float, chosen: list[Bisected]) -> dict[str, Any]:
    """Bisects, unless that was done for another rate, and trains the network that was found."""
    make, about = _maker(study, name, seed)
    if not chosen:
        chosen.append(bisect(make, Clock.of(study, seed), limit, GRID))
    found = chosen[0]
    said = {**about, "asked": found.share, "tries": found.tries, "missed": found.missed}
    model = None if found.share is None else make(found.share)
    if model is None:
        return {**said, "refused": True}
    trained = study.train(model, seed, study.finishing(lr))
    time = next(one["time"] for one in found.tries if one["share"] == found.share)
    return {**said, **trained, "time": time, "share": trained["macs"] / full_macs(study, seed)}


def _maker(study: Study, name: str, seed: int) -> tuple[Make, dict[str, Any]]:
    """What makes the networks of a contestant, and what is said about it."""
    if name == "uniform":
        return lambda share: ours.widths(study, seed, share, None), {}
    answer = peers.pruned(study, name, seed, GRID)

    def make(share: float) -> nn.Module | None:
        torch.manual_seed(seed)
        found = peers.network_of(study, answer, share)
        return None if found is None else found[0]

    return make, {key: answer[key] for key in ("versions", "settings")}
