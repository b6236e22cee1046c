"""The meter's server: HTTP with a token, one measurement at a time, bounded in bytes, time, memory and connections.

Whatever arrives, the log holds when, from where and which rule it met; never what was sent.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

from budgetnet.costs.latency.meter import machine
from budgetnet.costs.latency.meter.child import HEADER, Request
from budgetnet.costs.latency.meter.screening import Refused

ROOT = Path(__file__).resolve().parents[4]
"""Where the package lies: a folder, or the file that the meter was packed into."""

ANSWER = 1 << 24
"""The longest answer of a measuring process, in bytes."""
LINGER = 1.0
"""Seconds to read on after a refusal, so that the sender sees why."""
RETRY_AFTER = 2
"""Seconds after which somebody who met a busy meter should ask again."""


@dataclass(frozen=True)
class Limits:
    """What the meter does at most."""

    body: int = 64 << 20
    """Bytes of a request."""
    seconds: float = 120.0
    """Seconds of one measurement, processor time on all threads too."""
    memory: int = 2 << 30
    """Bytes of the process that measures."""
    request_seconds: float = 60.0
    """Seconds within which a request must have arrived as a whole."""
    connections: int = 32
    """Open at a time; others are turned away."""


Log = Callable[[str], None]


class Server(ThreadingMixIn, HTTPServer):
    """Answers `GET /machine` and `POST /measure`, to those who know the token.

    Args:
        address: host and port to listen on; port 0 takes a free one.
        token: what a request must carry as `Authorization: Bearer TOKEN`.
        limits: what it does at most.
        log: takes one line for each request.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], token: str, limits: Limits, log: Log) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.token, self.limits, self.log = token.encode(), limits, log
        self.busy = threading.Lock()
        self.measuring: subprocess.Popen[bytes] | None = None
        self._deadlines: dict[socket.socket, float] = {}
        self._guard = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Binds without asking a name server who we are."""
        socketserver_bind(self)

    def server_close(self) -> None:
        """Stops listening, and what is being measured."""
        super().server_close()
        if self.measuring is not None:
            _kill(self.measuring)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Takes a connection if there is room for one more, and gives it a time to be done."""
        with self._guard:
            room = len(self._deadlines) < self.limits.connections
            if room:
                self._deadlines[request] = time.monotonic() + self.limits.request_seconds
        if room:
            super().process_request(request, client_address)
        else:
            self.log(f"{client_address[0]}: turned away, too many connections")
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(b"HTTP/1.0 503 Busy\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % RETRY_AFTER)
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection and forgets it."""
        with self._guard:
            self._deadlines.pop(request, None)
        super().shutdown_request(request)

    def postpone(self, request: socket.socket, seconds: float) -> None:
        """Gives a connection so much time from now on."""
        with self._guard:
            self._deadlines[request] = time.monotonic() + seconds

    def service_actions(self) -> None:
        """Cuts connections that took too long, whatever they are at; called about twice a second."""
        with self._guard:
            late = [request for request, deadline in self._deadlines.items() if time.monotonic() > deadline]
            self._deadlines |= dict.fromkeys(late, math.inf)  # each is cut once; its thread forgets it
        for request in late:
            with contextlib.suppress(OSError):
                self.log(f"{request.getpeername()[0]}: cut off, it took too long")
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What went wrong with a connection is said without what it carried."""
        kind = sys.exc_info()[0]
        self.log(f"{client_address[0]}: ended by {'' if kind is None else kind.__name__}")


def socketserver_bind(server: HTTPServer) -> None:
    """`HTTPServer.server_bind` without its look-up of the host's name, which may take long on a device."""
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.socket.bind(server.server_address)
    server.server_address = server.socket.getsockname()
    server.server_name, server.server_port = "meter", server.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    """One request of one connection."""

    server: Server
    server_version, sys_version = "budgetnet-meter", ""

    def do_GET(self) -> None:
        """The machine, for those who know the token."""
        if not self._known():
            return
        if self.path != "/machine":
            self._refuse(404, "there is nothing here; ask for /machine or /measure")
            return
        self._answer(200, {"machine": machine.describe()}, "described the machine")

    def do_POST(self) -> None:
        """One measurement, for those who know the token, if no other is under way."""
        if not self._known():
            return
        if self.path != "/measure":
            self._refuse(404, "there is nothing here; send a network to /measure")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            self._refuse(411, "a request must say how many bytes it has")
        elif int(length) > self.server.limits.body:
            self._refuse(413, f"the meter takes at most {self.server.limits.body} bytes")
        elif not self.server.busy.acquire(blocking=False):
            self._refuse(503, "the meter is measuring for somebody else; ask again")
        else:
            self._measure(int(length))

    def _measure(self, length: int) -> None:
        """Measures, lets the next one in, and answers."""
        try:
            line = self.rfile.readline(min(length, HEADER))
            found = self._run(Request.from_bytes(line), line, length - len(line))
        except Refused as refusal:
            found = {"refused": str(refusal)}
        finally:
            self.server.busy.release()
        if "refused" in found:
            self._refuse(422, found["refused"])
        else:
            self._answer(200, found, "measured a network")

    def _run(self, request: Request, line: bytes, length: int) -> dict[str, Any]:
        limits = self.server.limits
        with _process(request, limits) as process:
            self.server.measuring = process
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line)
                while length:
                    piece = self.rfile.read1(min(length, 1 << 16))
                    if not piece:
                        raise ConnectionError
                    process.stdin.write(piece)
                    length -= len(piece)
                process.stdin.close()
            self.server.postpone(self.connection, limits.seconds + limits.request_seconds)
            answer = _answer_of(process, self.connection, limits.seconds)
        if answer is None:
            raise Refused(f"the network took longer than {limits.seconds:g} seconds, or more memory than allowed")
        return answer

    def _known(self) -> bool:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        # compared as bytes, in a time that does not depend on where they differ
        known = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.server.token)
        if not (known and scheme.lower() == "bearer"):
            self._refuse(401, "this meter asks for its token, which was shown when it was started")
        return known and scheme.lower() == "bearer"

    def _refuse(self, code: int, sentence: str) -> None:
        self._answer(code, {"refused": sentence}, f"refused ({code}): {sentence}")
        self._drain()

    def _answer(self, code: int, value: Any, said: str) -> None:
        self.server.log(f"{self.client_address[0]}: {said}")
        body = json.dumps(value).encode()
        self.send_response_only(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if code == 503:
            self.send_header("Retry-After", str(RETRY_AFTER))
        self.end_headers()
        self.wfile.write(body)

    def _drain(self) -> None:
        """Reads a little more, since a connection that is closed with bytes unread loses the answer."""
        end = time.monotonic() + LINGER
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(LINGER)
            while time.monotonic() < end and self.rfile.read1(1 << 16):
                pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses: a line or headers that are not HTTP, or too many of them."""
        with contextlib.suppress(OSError):
            self._answer(code, {"refused": "this is no request that the meter takes"}, f"refused ({code})")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: its lines would hold what was sent."""


@contextlib.contextmanager
def _process(request: Request, limits: Limits) -> Iterator[subprocess.Popen[bytes]]:
    """A measuring process in an empty folder, without the token or a name that the client gave; killed after."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    seconds = int(limits.seconds * max(1, min(request.threads, machine.cores()))) + 1
    with tempfile.TemporaryDirectory(prefix="budgetnet-meter-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "budgetnet.costs.latency.meter.child", str(seconds), str(limits.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _kill(process)
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    assert pipe is not None
                    pipe.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answer_of(process: subprocess.Popen[bytes], client: socket.socket, seconds: float) -> dict[str, Any] | None:
    """What the process says; nothing if it takes too long or dies. Ends early if the client goes away."""
    assert process.stdout is not None
    end, said = time.monotonic() + seconds, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(client, selectors.EVENT_READ)
        while (left := end - time.monotonic()) > 0 and len(said) <= ANSWER:
            for key, _ in selector.select(left):
                if key.fileobj is client:
                    if not client.recv(1, socket.MSG_PEEK):
                        raise ConnectionAbortedError
                    selector.unregister(client)
                    continue
                piece = os.read(process.stdout.fileno(), 1 << 16)
                if not piece:
                    return _parsed(said)
                said += piece
    return None


def _parsed(said: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(said)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
