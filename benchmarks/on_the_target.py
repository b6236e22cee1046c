"""Does a budget hold on another machine, over a bad link, with a meter that is killed and started again?

The target is a network namespace of its own with another address, its meter pinned to one core. The link has a relay in
it that holds every piece back by 100 ms in each direction and, as a lost packet would, one in fifty by 300 ms more.

1. The same network is measured with and without the delay, in turns: the figures must be within 3 %.
2. A search under 60 % of the full network's time there must end certified, and hold when measured in a fresh process.
3. The meter is killed during the same search, and started again: the run must finish with a certificate.
4. The meter is stopped for good: the search must end with a sentence, and go on with --resume when it is back.

    python -m benchmarks.on_the_target [--runs runs/on-the-target]     (as root: it makes a network namespace)
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._common import pin_threads, write_result
from budgetnet import data
from budgetnet.costs.latency import runtimes, timing
from budgetnet.costs.latency.meter.program import TOKEN, write_program
from budgetnet.costs.latency.remote import Target
from budgetnet.costs.named import TARGETS
from budgetnet.network.extract import extract
from budgetnet.spaces import build

SPACE, DATA = "resnet-fabric:width=3,channels=8", "embedded:limit=1000"
NAMESPACE, HERE, THERE, PORT, RELAY = "budgetnet-target", "10.77.0.1", "10.77.0.2", 8700, 8701
DELAY, STALL, STALLED = 0.1, 0.3, 0.02
DIRECT, DELAYED = f"http://{THERE}:{PORT}", f"http://{HERE}:{RELAY}"


def ip(*words: str) -> None:
    """A command of iproute2, which must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def namespace() -> Iterator[None]:
    """Another machine as far as the network goes."""
    ip("netns", "add", NAMESPACE)
    try:
        ip("link", "add", "bnt0", "type", "veth", "peer", "name", "bnt1", "netns", NAMESPACE)
        ip("addr", "add", f"{HERE}/24", "dev", "bnt0")
        ip("link", "set", "bnt0", "up")
        ip("-n", NAMESPACE, "addr", "add", f"{THERE}/24", "dev", "bnt1")
        ip("-n", NAMESPACE, "link", "set", "bnt1", "up")
        yield
    finally:
        ip("netns", "del", NAMESPACE)


class Meter:
    """The one-file program in the namespace, on core 1, which can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "meter.pyz"
        write_program(self.program)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it listens."""
        words = ["ip", "netns", "exec", NAMESPACE, "taskset", "-c", "1", sys.executable, str(self.program)]
        self.process = subprocess.Popen(
            [*words, "--host", THERE, "--port", str(PORT)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def stop(self) -> None:
        """Kills it, and what it measures."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Every piece as late as it would be; pieces overtake nobody, and many are under way at once."""
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                break
            target.write(piece)
            await target.drain()
        target.write_eof()

    delivery = asyncio.create_task(deliver())
    with contextlib.suppress(ConnectionError):
        while piece := await source.read(1 << 16):
            late = STALL if random.random() < STALLED else 0.0
            pieces.put_nowait((time.monotonic() + DELAY + late, piece))
    pieces.put_nowait((time.monotonic() + DELAY, b""))
    with contextlib.suppress(ConnectionError, OSError):
        await delivery


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        there_reader, there_writer = await asyncio.open_connection(THERE, PORT)
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        there_writer.close()
    writer.close()


def start_relay() -> None:
    """The link with a delay, in a thread for as long as the process lives."""

    async def serve() -> None:
        server = await asyncio.start_server(_relay, HERE, RELAY)
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()


def delays(rounds: int) -> dict[str, Any]:
    """The latency of one network with and without the delay, in turns."""
    dataset = data.load(DATA)
    net = build(SPACE, dataset.input_shape, len(dataset.classes))
    model = runtimes.OnnxRuntime().export(extract(net, net.graph.full).eval(), net.input_shape)
    found: dict[str, list[float]] = {DIRECT: [], DELAYED: []}
    waited: dict[str, list[float]] = {DIRECT: [], DELAYED: []}
    for _ in range(rounds):
        for url, values in found.items():
            begin = time.monotonic()
            series, _ = Target(url).series(model, runtimes.reference_file(), batch=1, threads=1, seconds=1.0, rounds=4)
            waited[url].append(time.monotonic() - begin)
            values.append(float(timing.latency(series.calm())))
    direct, delayed = (float(np.median(found[url])) for url in (DIRECT, DELAYED))
    return {
        "without_delay": found[DIRECT],
        "with_delay": found[DELAYED],
        "request_seconds_without": float(np.median(waited[DIRECT])),
        "request_seconds_with": float(np.median(waited[DELAYED])),
        "difference": delayed / direct - 1,
        "bar": 0.03,
        "met": abs(delayed / direct - 1) < 0.03,
    }


def command(*words: str) -> subprocess.Popen[str]:
    """budgetnet in a process of its own, on one thread."""
    return subprocess.Popen(
        [sys.executable, "-m", "budgetnet", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def search(run: Path, url: str, *more: str) -> subprocess.Popen[str]:
    """A search under 60 % of the full network's time on the target."""
    words = ["--space", SPACE, "--data", DATA, "--epochs", "1", "--seed", "0", "--threads", "1", "--quiet", *more]
    return command("search", *words, "--budget", f"latency(target={url})<=60%", "--out", str(run))


def outcome(run: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """How a search ended: its certificate, and the same measured in a fresh process."""
    _, said = process.communicate()
    row: dict[str, Any] = {"exit_code": process.returncode, "said": said.strip()[-300:]}
    if not (run / "summary.json").exists():
        return row
    entry = json.loads((run / "certificate.json").read_text())["budgets"][0]
    again = command("certify", str(run), "--json")
    measured = json.loads(again.communicate()[0])["budgets"][0]
    kept = json.loads((run / "architecture.json").read_text())["kept"]
    names = ("maximum", "measured", "upper_bound", "holds")
    return {
        **row,
        "certificate": {name: entry[name] for name in names},
        "target": entry["how"]["target"],
        "processor": entry["how"]["processor"],
        "again": {name: measured[name] for name in names},
        "kept": sorted(kept),
    }


def interrupted(run: Path, meter: Meter, wait: float) -> dict[str, Any]:
    """The same search, with the meter killed in its middle and started again after a while."""
    process = search(run, DIRECT)
    _until_trained(run, process)
    meter.stop()
    time.sleep(wait)
    meter.start()
    return {"seconds_without_a_meter": wait, **outcome(run, process)}


def gone(run: Path, meter: Meter) -> dict[str, Any]:
    """The meter stopped for good during a search, and the search resumed when it is back."""
    process = search(run, DIRECT)
    _until_trained(run, process)
    meter.stop()
    begin = time.monotonic()
    first = outcome(run, process)
    row = {"ended_after": time.monotonic() - begin, "exit_code": first["exit_code"], "said": first["said"]}
    meter.start()
    return {**row, "resumed": outcome(run, search(run, DIRECT, "--resume"))}


def _until_trained(run: Path, process: subprocess.Popen[str]) -> None:
    """Until the search has saved a state: the predictor is fitted, and training has begun."""
    while process.poll() is None and not list(run.glob("**/*.checkpoint")):
        time.sleep(0.1)


def main() -> None:
    """Runs all four parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/on-the-target"))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    pin_threads()
    os.environ |= {TOKEN: "a-token-for-this-benchmark-only", TARGETS: f"{DIRECT},{DELAYED}"}
    shutil.rmtree(arguments.runs, ignore_errors=True)
    arguments.runs.mkdir(parents=True)
    with namespace():
        meter = Meter(arguments.runs)
        meter.start()
        start_relay()
        try:
            rows = {"link": delays(arguments.rounds)}
            rows["search"] = outcome(arguments.runs / "a", search(arguments.runs / "a", DELAYED))
            rows["restarted"] = interrupted(arguments.runs / "b", meter, wait=15.0)
            rows["gone"] = gone(arguments.runs / "c", meter)
        finally:
            meter.stop()
    write_result("on_the_target", rows)


if __name__ == "__main__":
    main()
