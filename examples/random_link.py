"""A cost that is random: the delay of a network that is cut in two, over a link that is sometimes slow.

The device computes the first part of the network, sends the features over a link, and the cloud does the rest. How long
the link takes differs from one input to the next, so "at most 30 ms" can mean two things:

- on average: the *expected* delay is within 30 ms, although many inputs take longer;
- in 95 of 100 cases: the *95th percentile* of the delay is within 30 ms.

A cost says which by an attribute: `stochastic = True` for the first, `quantile = 0.95` for the second. Everything else
is the same function. It is redrawn at every evaluation, many thousand times in a search, so what does not depend on
chance is computed once per architecture. A budget holds when the upper 95 % bound of what was asked for is within it.

    python examples/random_link.py [--out FOLDER]
"""

import argparse
import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import budgetnet
from budgetnet import Architecture, SuperNetwork
from budgetnet.costs import bind, macs
from budgetnet.costs.traffic import place

PROMISE = 0.030  # seconds
CLOUD = ("g1b2", "g2b1", "g2b2")  # the nodes that are not on the device
DEVICE_SPEED = 30e6  # multiply-adds a second; the cloud's time is small against it and left out
BANDWIDTH = 250e3  # bytes a second when the link is free
SPREAD = 0.6  # a transfer takes exp(SPREAD · N(0, 1)) times as long: log-normal, now half, now three times the time


def parts(net: SuperNetwork) -> Callable[[Architecture], tuple[float, float]]:
    """What does not depend on chance: seconds of computing on the device, and of sending over a free link."""
    work, sent = macs(net), place(net, CLOUD)

    @functools.cache
    def of(architecture: Architecture) -> tuple[float, float]:
        live, edges = architecture.live(), zip(net.graph.edges, work.edges.tolist(), strict=True)
        on_device = sum(count for edge, count in edges if edge.name in live and edge.target not in CLOUD)
        return on_device / DEVICE_SPEED, sent(live) / BANDWIDTH

    return of


def link_delay(net: SuperNetwork) -> Callable[[Architecture], float]:
    """One draw of the delay, in seconds."""
    seconds, chance = parts(net), random.Random(0)

    def draw(architecture: Architecture) -> float:
        computing, sending = seconds(architecture)
        return computing + sending * chance.lognormvariate(0, SPREAD)

    return draw


link_delay.unit, link_delay.stochastic = "s", True


def link_delay_p95(net: SuperNetwork) -> Callable[[Architecture], float]:
    """The same delay; its 95th percentile is what counts."""
    return link_delay(net)


link_delay_p95.unit, link_delay_p95.quantile = "s", 0.95


def simulate(net: SuperNetwork, architecture: Architecture, draws: int = 200_000) -> dict[str, float]:
    """The check: as many inputs as you like, with other random numbers than those of the search."""
    computing, sending = parts(net)(architecture)
    delays = computing + sending * np.exp(SPREAD * np.random.default_rng(1).standard_normal(draws))
    return {
        "mean": float(delays.mean()),
        "p95": float(np.quantile(delays, 0.95)),
        "late": float((delays > PROMISE).mean()),
    }


def search(cost: Callable[..., Any], out: Path) -> dict[str, Any]:
    """One search for one meaning of the promise, and what came of it."""
    dataset = budgetnet.data.load("embedded:size=14,limit=1280")
    torch.manual_seed(0)  # the first weights of your own network are yours to choose
    net = budgetnet.spaces.resnet_fabric(width=2, channels=4, classes=10, input_shape=dataset.input_shape)
    result = budgetnet.search(
        net,
        dataset.train,
        dataset.validation,
        dataset.test,
        budgets=[(cost, PROMISE)],
        out=out / cost.__name__,
        epochs=2,
        threads=1,
        quiet=True,
    )
    evidence = {"mean": bind(link_delay, net), "p95": bind(link_delay_p95, net)}
    return {
        "certificate": result.certificate,
        "accuracy": result.summary.test_score,
        "kilobytes": place(net, CLOUD)(result.architecture) / 1e3,
        "evidence": {name: meter.evidence(result.architecture) for name, meter in evidence.items()},
        "simulated": simulate(net, result.architecture),
    }


def tell(title: str, found: dict[str, Any]) -> None:
    """One search for people."""
    (entry,) = found["certificate"].budgets
    print(f"\n{title} at most {PROMISE * 1e3:.0f} ms")
    print(f"  {found['kilobytes']:.1f} kB are sent, test accuracy {found['accuracy']:.1%} after a very short training")
    print(
        f"  certificate: {entry.measured * 1e3:.1f} ms, at most {entry.upper_bound * 1e3:.1f} ms (95 %), "
        f"from {entry.how['samples']} draws: it {'holds' if entry.holds else 'does not hold'}"
    )
    for name, evidence in found["evidence"].items():
        print(
            f"  {name:4}: {evidence.value * 1e3:5.1f} ms, at most {evidence.upper_bound * 1e3:5.1f} ms; "
            f"simulated {found['simulated'][name] * 1e3:5.1f} ms"
        )
    print(f"  {found['simulated']['late']:.1%} of all inputs take longer than {PROMISE * 1e3:.0f} ms")


def main(out: Path) -> dict[str, dict[str, Any]]:
    """Both searches, by the name of what was promised."""
    found = {"mean": search(link_delay, out), "p95": search(link_delay_p95, out)}
    tell("The expected delay is", found["mean"])
    tell("The 95th percentile of the delay is", found["p95"])
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the runs; a temporary one if not given")
    given = parser.parse_args().out
    with tempfile.TemporaryDirectory() as temporary:
        main(given or Path(temporary))
