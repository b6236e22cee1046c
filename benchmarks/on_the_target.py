"""Does a budget hold on another machine, over a bad link, with a meter that is killed and started again?

The target is a network namespace with another address, its meter pinned to one core. The link to it delays and loses
packets (`_link`: kernels without `tc netem` can do this too).

1. One network is measured over a good link, with a delay of 100 ms and with 10 % loss, in turns: the figures must be
   within 3 % of each other.
2. A search under 60 % of the full network's time there, over a link with 50 ms of delay and 5 % loss, must end
   certified, and hold when measured in a fresh process.
3. The meter is killed during the same search, and started again after 15 s: the run must end with the same network and
   a certificate that holds. For networks to be comparable, the relay `_recorder` gives this search the samples of the
   first one; the meter measures all the same, and the relay remembers nothing when a certificate is measured again.
4. The meter is killed for good: the search must end with a sentence, and go on with --resume when it is back.

    python -m benchmarks.on_the_target [--runs runs/on-the-target]     (as root, about ten minutes)
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks._common import pin_threads, write_result
from benchmarks._link import Conditions, Link, other_machine
from benchmarks._recorder import Recorder
from budgetnet import data
from budgetnet.costs.latency import runtimes, timing
from budgetnet.costs.latency.meter.program import TOKEN, write_program
from budgetnet.costs.latency.remote import Target
from budgetnet.costs.named import TARGETS
from budgetnet.network.extract import extract
from budgetnet.spaces import build

SPACE, DATA, SEED = "resnet-fabric:width=3,channels=8", "embedded:limit=1000", 0
NAMESPACE, HERE, THERE, PORT, RELAY = "budgetnet-target", "10.77.0.1", "10.77.0.2", 8700, 8701
DIRECT = f"http://{THERE}:{PORT}"
LINKS = {"good": Conditions(), "delay": Conditions(delay=0.1), "loss": Conditions(delay=0.02, loss=0.1)}
"""Links over which the same network is measured."""
BAD = Conditions(delay=0.05, loss=0.05)
"""The link of the search."""
PAUSE = 15.0
"""Seconds without a meter."""
BAR = 0.03


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


def links(link: Link, rounds: int) -> dict[str, Any]:
    """The latency of one network over each link, in turns."""
    dataset = data.load(DATA)
    net = build(SPACE, dataset.input_shape, len(dataset.classes))
    model = runtimes.OnnxRuntime().export(extract(net, net.graph.full).eval(), net.input_shape)
    found: dict[str, list[timing.Series]] = {name: [] for name in LINKS}
    rows: dict[str, dict[str, Any]] = {name: {"packets": 0, "lost": 0, "request_seconds": 0.0} for name in LINKS}
    for _ in range(rounds):
        for name, link.conditions in LINKS.items():
            before, begin = (link.packets, link.lost), time.monotonic()
            series, _ = Target(DIRECT).series(
                model, runtimes.reference_file(), batch=1, threads=1, seconds=1.0, rounds=4
            )
            found[name].append(series.calm())
            rows[name]["request_seconds"] += (time.monotonic() - begin) / rounds
            rows[name]["packets"] += link.packets - before[0]
            rows[name]["lost"] += link.lost - before[1]
    latencies = {name: float(timing.latency(timing.join(series))) for name, series in found.items()}
    for name, row in rows.items():
        row["delay"], row["loss"] = LINKS[name].delay, LINKS[name].loss
        row["latency"] = latencies[name]
        row["latency_of_each_round"] = [float(timing.latency(series)) for series in found[name]]
        row["difference"] = latencies[name] / latencies["good"] - 1
    met = all(abs(row["difference"]) < BAR for row in rows.values())
    return {"n": rounds, "bar": BAR, "met": met, **rows}


def command(*words: str) -> subprocess.Popen[str]:
    """budgetnet in a process of its own, on one thread."""
    return subprocess.Popen(
        [sys.executable, "-m", "budgetnet", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def search(run: Path, relay: Recorder, *more: str) -> dict[str, Any]:
    """A search under 60 % of the full network's time there: how it ended, and its certificate measured again."""
    begin = time.monotonic()
    words = ["--space", SPACE, "--data", DATA, "--epochs", "1", "--seed", str(SEED), "--threads", "1", "--quiet", *more]
    process = command("search", *words, "--budget", f"latency(target={relay.url})<=60%", "--out", str(run))
    said = process.communicate()[1].strip()[-300:]
    row: dict[str, Any] = {"exit_code": process.returncode, "said": said, "seconds": time.monotonic() - begin}
    if not (run / "summary.json").exists():
        return row
    entry = json.loads((run / "certificate.json").read_text())["budgets"][0]
    with relay.passed_on():
        again = json.loads(command("certify", str(run), "--json").communicate()[0])["budgets"][0]
    names = ("maximum", "measured", "upper_bound", "holds")
    return {
        **row,
        "certificate": {name: entry[name] for name in names},
        "target": entry["how"]["target"],
        "processor": entry["how"]["processor"],
        "again": {name: again[name] for name in names},
        "network": hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest(),
        "kept": sorted(json.loads((run / "architecture.json").read_text())["kept"]),
    }


def compared(row: dict[str, Any], undisturbed: dict[str, Any]) -> dict[str, Any]:
    """Whether a search ended with the same network, to the bit, and a certificate that holds."""
    same = row.get("network") == undisturbed["network"] and row.pop("kept", None) == undisturbed["kept"]
    return {**row, "same_network": same, "met": same and row["certificate"]["holds"] and row["again"]["holds"]}


def interrupted(run: Path, meter: Meter, relay: Recorder, answers: int) -> dict[str, Any]:
    """The same search, with the meter killed in its middle and started again after a while."""

    def restart(count: int) -> None:
        if count == answers // 2:
            meter.stop()
            threading.Timer(PAUSE, meter.start).start()

    relay.next_run(restart)
    return {"seconds_without_a_meter": PAUSE, **search(run, relay)}


def gone(run: Path, meter: Meter, relay: Recorder, answers: int) -> dict[str, Any]:
    """The meter killed for good before the end of the search, and the search resumed when it is back."""
    relay.next_run(lambda count: meter.stop() if count == answers - 3 else None)
    first = search(run, relay)
    meter.start()
    relay.next_run()  # a process that goes on measures the full network again, since the budget is a share of its time
    return {"ended": first, "resumed": search(run, relay, "--resume")}


def measure(runs: Path, meter: Meter, link: Link, rounds: int) -> dict[str, Any]:
    """All four parts."""
    rows: dict[str, Any] = {"link": links(link, rounds)}
    relay = Recorder((THERE, PORT), (HERE, RELAY))
    os.environ[TARGETS] = relay.url
    try:
        link.conditions = BAD
        rows["search"] = undisturbed = search(runs / "a", relay)
        undisturbed |= {"delay": BAD.delay, "loss": BAD.loss}
        undisturbed["met"] = undisturbed["certificate"]["holds"] and undisturbed["again"]["holds"]
        link.conditions, answers = Conditions(), relay.answered
        rows["restarted"] = compared(interrupted(runs / "b", meter, relay, answers), undisturbed)
        rows["gone"] = gone(runs / "c", meter, relay, answers)
        rows["gone"]["resumed"] = compared(rows["gone"]["resumed"], undisturbed)
    finally:
        relay.close()
    return rows


def main() -> None:
    """Makes the other machine, and runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/on-the-target"))
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    pin_threads()
    os.environ[TOKEN] = "a-token-for-this-benchmark-only"
    shutil.rmtree(arguments.runs, ignore_errors=True)
    arguments.runs.mkdir(parents=True)
    with other_machine(NAMESPACE, HERE, THERE) as link:
        meter = Meter(arguments.runs)
        meter.start()
        try:
            rows = measure(arguments.runs, meter, link, arguments.rounds)
        finally:
            meter.stop()
    met = all(row["met"] for row in (rows["link"], rows["search"], rows["restarted"], rows["gone"]["resumed"]))
    about = {"space": SPACE, "data": DATA, "seeds": [SEED], "n": 3}
    write_result("on_the_target", {**about, "met": met and rows["gone"]["ended"]["exit_code"] == 2, **rows})


if __name__ == "__main__":
    main()
