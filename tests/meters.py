"""Real meters for tests: the one-file program in a process of its own, and requests as any client could send them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from budgetnet.costs.latency.meter.child import PROVIDER, Request
from budgetnet.costs.latency.meter.program import write_program

TOKEN = "a-token-for-tests-only"


@dataclass
class Meter:
    """A running meter and the lines of its log, which are whole once it has stopped."""

    process: subprocess.Popen[str]
    address: tuple[str, int]
    log: Path
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": f"Bearer {TOKEN}"})

    @property
    def url(self) -> str:
        """As a budget names it."""
        return f"http://{self.address[0]}:{self.address[1]}"

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Status, value and headers of one answer."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, self.headers if headers is None else headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}"), dict(answer.headers)
        finally:
            connection.close()

    def measure(self, network: bytes, reference: bytes, **changed: Any) -> tuple[int, dict[str, Any]]:
        """Status and value of one measurement."""
        status, value, _ = self.ask("POST", "/measure", request(network, reference, **changed))
        return status, value

    def connect(self) -> socket.socket:
        """A connection of its own."""
        return socket.create_connection(self.address, timeout=60)

    def peak_bytes(self) -> int:
        """The most memory that the process has held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024

    def stop(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def request(network: bytes, reference_network: bytes, /, **changed: Any) -> bytes:
    """The body of a request, with values other than the usual ones where these are given."""
    values: dict[str, Any] = {"what": "latency", "batch": 1, "threads": 1, "seconds": 0.05, "rounds": 2}
    values |= {"provider": PROVIDER, "reference": len(reference_network), **changed}
    return Request(**values).to_bytes() + reference_network + network


def start_meter(
    folder: Path, *options: str, prefix: Sequence[str] = (), port: int = 0, host: str = "127.0.0.1"
) -> Meter:
    """Starts the one-file program, where no torch can be imported, and waits until it listens."""
    program = folder / "meter.pyz"
    if not program.exists():
        write_program(program)
        (folder / "torch.py").write_text("raise ImportError('there is no torch on this device')\n")
    log = folder / "log.txt"
    environment = {**os.environ, "BUDGETNET_METER_TOKEN": TOKEN, "PYTHONPATH": str(folder)}
    with log.open("a") as stderr:
        process = subprocess.Popen(
            [*prefix, sys.executable, str(program), "--host", host, "--port", str(port), *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://([\d.]+):(\d+)", line)
    assert found, line + log.read_text()
    return Meter(process, (found[1], int(found[2])), log)


@contextlib.contextmanager
def meter(folder: Path, *options: str, prefix: Sequence[str] = ()) -> Iterator[Meter]:
    """A meter that is killed at the end."""
    running = start_meter(folder, *options, prefix=prefix)
    try:
        yield running
    finally:
        running.stop()
