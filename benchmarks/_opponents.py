"""What a search is compared with: hand-made networks and random sub-architectures, trained once and for all.

Each protocol has a ledger of them beside its results (`benchmarks/_ledger.py`). A random opponent is a connected
sub-architecture that costs 90 to 100 % of a budget, every edge being equally probable; the i-th one of a budget is
trained with seed i, for as many epochs as what a search found, or for as many seconds as the whole search took.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks._common import RESULTS, add_data_root
from benchmarks._ledger import Ledger, Network
from budgetnet.costs import AdditiveCost, macs
from budgetnet.naming.files import write_file
from budgetnet.network.distribution import EdgeDistribution
from budgetnet.network.graph import Architecture
from budgetnet.network.supernet import SuperNetwork
from budgetnet.spaces import build
from budgetnet.strategies.recipes import TIME_SHARES

RANGE = (0.9, 1.0)
"""Of the budget that a random sub-architecture costs."""
MOST_TIMES = 8
"""Times the usual epochs that a network may be trained for where the seconds are limited: more than they allow."""


@dataclass(frozen=True)
class Protocol:
    """What is compared: networks of a space, trained alike on some data, at shares of the multiply-adds `whole`."""

    name: str
    space: str
    data: str
    epochs: float
    whole: int
    hand_made: tuple[str, ...]
    """Spaces with an architecture each."""
    shape: tuple[int, int, int] = (3, 16, 16)
    """Of an image. All of them have ten classes."""

    def __str__(self) -> str:
        return f"reduced: {self.data}, {self.space}, {self.epochs:g} final epochs"

    def build(self) -> SuperNetwork:
        """The super network, with fresh weights."""
        return build(self.space, self.shape, 10)

    def maximum(self, share: float) -> int:
        """Multiply-adds of a share."""
        return round(share * self.whole)

    def budget(self, share: float) -> str:
        """On a command line."""
        return f"macs<={self.maximum(share)}"


def _resnets(*blocks: int) -> tuple[str, ...]:
    """ResNets of so many blocks a group, of the channels of the fabric."""
    return tuple(f"resnet-fabric:width={n},channels=8@resnet-{6 * n + 2}" for n in blocks)


RESNET = Protocol(
    name="resnet",
    space="resnet-fabric:width=3,channels=8",
    data="cifar10:size=16,limit=30000",
    epochs=16,
    whole=2_589_504,  # of its ResNet-20
    hand_made=_resnets(1, 2, 3, 4),
)
NEURAL = Protocol(
    name="neural",
    space="neural-fabric:width=8,scales=5,filters=16",
    data=RESNET.data,
    epochs=16,
    whole=12_905_440,
    hand_made=tuple(f"neural-fabric:width={n},scales=5,filters=16@full" for n in (1, 2, 3)),
)
FASHION = Protocol(
    name="fashion",
    space=RESNET.space,
    data="fashion-mnist:size=16",
    epochs=8,
    whole=2_552_640,  # of its ResNet-20
    hand_made=_resnets(1, 2, 3),
    shape=(1, 16, 16),
)
PROTOCOLS = {protocol.name: protocol for protocol in (RESNET, NEURAL, FASHION)}

Row = Mapping[str, Any]
Table = list[dict[str, Any]]
Point = tuple[float, float]
"""Multiply-adds and test accuracy."""


def random_architectures(net: SuperNetwork, maximum: float, count: int, seed: int) -> list[Architecture]:
    """Connected sub-architectures that cost 90 to 100 % of a maximum, all edges being equally probable."""
    generator, cost = torch.Generator().manual_seed(seed), macs(net)
    found: list[Architecture] = []
    logit = _logit(net, cost, maximum * sum(RANGE) / 2)
    while len(found) < count:
        gates = _draw(net, logit, 64, generator)
        costs = cost.evaluate(gates)
        fit = gates.any(1) & (costs >= RANGE[0] * maximum) & (costs <= RANGE[1] * maximum)
        found += [net.graph.architecture(row) for row in gates[fit]]
    return found[:count]


def _draw(net: SuperNetwork, logit: float, count: int, generator: torch.Generator) -> torch.Tensor:
    distribution = EdgeDistribution(net.graph)
    with torch.no_grad():
        distribution.logits.fill_(logit)
    return net.graph.live(distribution.sample(count, generator).gates)


def _logit(net: SuperNetwork, cost: AdditiveCost, target: float) -> float:
    """The logit of all edges at which connected samples cost `target` on average."""
    low, high = -5.0, 5.0
    for _ in range(20):
        middle = (low + high) / 2
        live = _draw(net, middle, 512, torch.Generator().manual_seed(0))
        mean = float(cost.evaluate(live[live.any(1)]).mean()) if live.any() else 0.0
        low, high = (middle, high) if mean < target else (low, middle)
    return (low + high) / 2


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """`--protocol`, `--out` and `--data-root`, for `Opponents.given`."""
    add_data_root(parser)
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="resnet")
    parser.add_argument("--out", type=Path, help="sweeps/quality, or that of the other protocol: sweeps/quality-neural")


@dataclass(frozen=True)
class Opponents:
    """The trained networks of a protocol, in a folder; what is missing is trained."""

    protocol: Protocol
    out: Path
    data_root: str

    @classmethod
    def given(cls, arguments: argparse.Namespace) -> Opponents:
        """Those of `add_protocol`."""
        name: str = arguments.protocol
        usual = Path("sweeps/quality") if name == "resnet" else Path(f"sweeps/quality-{name}")
        return cls(PROTOCOLS[name], arguments.out or usual, arguments.data_root)

    def random(self, share: float, count: int) -> Table:
        """A row for each random sub-architecture of a budget."""
        return self._trained(self._networks(share, count), self.protocol.epochs)

    def timed(self, share: float, number: int, seconds: float) -> dict[str, Any]:
        """A random sub-architecture, trained for so many seconds; not in the ledger, since machines differ."""
        network = self._networks(share, number + 1)[number]
        run = {"architectures": [network.architecture], "seeds": [network.seed]}
        name, limit = f"{network.name}-{self.protocol.epochs:g}-{seconds:.0f}s", seconds / TIME_SHARES["finish"]
        (row,) = self.sweep(name, [run], epochs=MOST_TIMES * self.protocol.epochs, max_time=limit)
        return row

    def _networks(self, share: float, count: int) -> list[Network]:
        protocol, networks = self.protocol, []
        found = random_architectures(protocol.build(), share * protocol.whole, count, seed=round(1000 * share))
        for i, architecture in enumerate(found):
            path = self.out / f"random-{share:g}-{i}.json"
            write_file(path, (architecture.to_json() + "\n").encode())
            networks.append(Network(path.stem, str(path), i, tuple(edge.name for edge in architecture)))
        return networks

    def hand_made(self, seeds: Sequence[int]) -> Table:
        """A row for each hand-made network and seed."""
        pairs = itertools.product(self.protocol.hand_made, seeds)
        return self._trained([Network(text, text, seed) for text, seed in pairs], self.protocol.epochs)

    def _trained(self, networks: Sequence[Network], epochs: float) -> Table:
        """The ledger's entries of these networks; those that it does not have are trained, in a sweep of their own."""
        ledger = Ledger(RESULTS / f"opponents_{self.protocol.name}.json")
        keys = [network.key(self.protocol.space, self.protocol.data, epochs) for network in networks]
        missing = {key: network for key, network in zip(keys, networks, strict=True) if key not in ledger}
        if missing:
            name = f"opponents-{hashlib.blake2b(''.join(missing).encode(), digest_size=4).hexdigest()}"
            grids = [{"architectures": [network.architecture], "seeds": [network.seed]} for network in missing.values()]
            rows = self.sweep(name, grids, epochs=epochs)
            for (key, network), row in zip(missing.items(), rows, strict=True):
                ledger.add(key, network, epochs, row, self.out / name / row["run"])
        return [ledger[key] for key in keys]

    def sweep(self, name: str, runs: Iterable[Mapping[str, Any]], *, test_all: bool = False, **settings: Any) -> Table:
        """The table of a sweep of these grids; what is finished is not run again."""
        protocol = self.protocol
        shared = {"space": protocol.space, "data": protocol.data, "epochs": protocol.epochs, "threads": 1}
        return sweep(self.out / name, {**shared, "data_root": self.data_root, **settings}, runs, test_all=test_all)


def sweep(
    out: Path, settings: Mapping[str, Any], runs: Iterable[Mapping[str, Any]], *, test_all: bool = False
) -> Table:
    """The table of `budgetnet sweep` with settings that all runs share, and grids of runs."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    for run in runs:
        lines += ["", "[[runs]]", *(f"{key} = {json.dumps(value)}" for key, value in run.items())]
    file = out.with_suffix(out.suffix + ".toml")
    write_file(file, "\n".join([*lines, ""]).encode())
    command = [sys.executable, "-m", "budgetnet", "sweep", str(file), "--out", str(out)]
    code = subprocess.run([*command, "--test-all"] if test_all else command, check=False).returncode
    if code:
        raise SystemExit(code)  # the sweep has said why
    table: Table = json.loads((out / "table.json").read_text(encoding="utf-8"))
    return table


def interpolated(points: Sequence[Point], macs: float) -> float:
    """The score at a cost, linearly between the two neighbours; outside of the points that of the nearer end."""
    ordered = sorted(points)
    for (x0, y0), (x1, y1) in itertools.pairwise(ordered):
        if x0 <= macs <= x1:
            return y0 + (y1 - y0) * (macs - x0) / (x1 - x0)
    return ordered[0][1] if macs < ordered[0][0] else ordered[-1][1]


def mean_point(rows: Sequence[Row]) -> Point:
    """Mean multiply-adds and test accuracy."""
    return fmean(row["macs"] for row in rows), fmean(row["test"] for row in rows)


def mean_points(rows: Sequence[Row], key: str) -> list[Point]:
    """The mean point of the rows that agree in a column: over their seeds."""
    return [mean_point([row for row in rows if row[key] == value]) for value in dict.fromkeys(r[key] for r in rows)]
