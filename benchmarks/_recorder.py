"""A relay before a meter that gives the same answers to every run, so that runs under measured budgets can be compared.

Two searches with the same seed differ because measured times do. Behind this relay the first search is measured, and
later ones are given the first one's samples wherever they ask the same: then only what happened to the meter differs.
A relay without its meter does not answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TIMEOUT = 120.0
"""Seconds that the meter may take for one answer."""


class Recorder(ThreadingHTTPServer):
    """Listens on an address of its own and asks the meter.

    Args:
        meter: The host and the port of the meter.
        address: The host and the port to listen on; port 0 takes a free one.
        measured_again: Whether the meter measures what it has measured before; else it is only asked whether it is
            there, which takes no time.
    """

    daemon_threads = True

    def __init__(
        self, meter: tuple[str, int], address: tuple[str, int] = ("127.0.0.1", 0), *, measured_again: bool = True
    ) -> None:
        super().__init__(address, _Handler)
        self.meter, self.measured_again = meter, measured_again
        self.answers: dict[str, list[bytes]] = {}
        self.asked: Counter[str] = Counter()
        self.recording, self.passing, self.answered = True, False, 0
        self.after_answer: Callable[[int], object] = lambda count: None
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """As a budget names it."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}"

    def next_run(self, after_answer: Callable[[int], object] = lambda count: None) -> None:
        """Gives the answers of the first run again, from the first one on; the last one to whoever asks more often.

        Args:
            after_answer: Called with the number of answers that this run has been given, before the next is taken.
        """
        self.recording, self.asked, self.answered, self.after_answer = False, Counter(), 0, after_answer

    @contextlib.contextmanager
    def passed_on(self) -> Iterator[None]:
        """Answers are the meter's own for a while, and are not kept."""
        self.passing = True
        try:
            yield
        finally:
            self.passing = False

    def close(self) -> None:
        """Stops listening."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def ask(self, method: str, path: str, body: bytes, token: str) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and value of the meter's answer, or of the recorded one."""
        if self.passing:
            return self._forward(method, path, body, token)
        key = hashlib.sha256(body).hexdigest()
        if method == "GET" or self.recording or self.measured_again or key not in self.answers:
            status, headers, value = self._forward(method, path, body, token)
        else:
            status, headers, value = self._forward("GET", "/machine", b"", token)
        if method == "GET" or status != http.HTTPStatus.OK:
            return status, headers, value
        with self._guard:
            known = self.answers.setdefault(key, [])
            if self.recording or not known:
                known.append(value)
            turn = min(self.asked[key], len(known) - 1)
            self.asked[key] += 1
        return status, headers, known[turn]

    def _forward(self, method: str, path: str, body: bytes, token: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.meter, timeout=TIMEOUT)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, {"Authorization": token})
            answer = connection.getresponse()
            kept = {"Retry-After": answer.headers["Retry-After"]} if "Retry-After" in answer.headers else {}
            return answer.status, kept, answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    server: Recorder

    def do_GET(self) -> None:
        """Asks the meter for its machine."""
        self._relay(b"")

    def do_POST(self) -> None:
        """Asks the meter for a measurement."""
        self._relay(self.rfile.read(int(self.headers["Content-Length"])))

    def _relay(self, body: bytes) -> None:
        try:
            found = self.server.ask(self.command, self.path, body, self.headers.get("Authorization", ""))
        except (OSError, http.client.HTTPException):
            return  # no answer, as the meter has given none
        self._answer(*found)
        if not self.server.passing:
            self.server.answered += 1
            self.server.after_answer(self.server.answered)

    def _answer(self, status: int, headers: dict[str, str], value: bytes) -> None:
        self.send_response_only(status)
        for name, text in {**headers, "Content-Length": str(len(value))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
