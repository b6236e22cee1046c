"""`watch`: the report of runs that are going on, served on this machine only. Two addresses, no files, no writing."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from budgetnet.errors import UserError
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.page import Content, content, render
from budgetnet.pictures.report.views import make_view
from budgetnet.records.folder import RunFiles, find_runs, read_run

ADDRESS = "127.0.0.1"
"""The only interface: the page shows paths and settings that concern nobody else."""

DEFAULT_PORT = 8123

WATCHED = (
    "records.jsonl",
    "archive.jsonl",
    "config.json",
    "data.json",
    "graph.json",
    "architecture.json",
    "summary.json",
    "certificate.json",
)

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Watcher:
    """The page of some runs, made again only when their files have changed."""

    def __init__(self, paths: Sequence[Path], space: str | None = None) -> None:
        self.paths = tuple(paths)
        self._networks = Networks(space)
        self._lock = threading.Lock()
        self._stamp = ""
        self._content: Content | None = None
        self._read: dict[Path, tuple[str, RunFiles]] = {}

    def now(self) -> tuple[str, Content]:
        """The content at this moment, and a stamp that differs when the content does.

        A folder that is deleted while it is watched leaves the page as it was.
        """
        with self._lock:
            folders = find_runs(self.paths)
            stamps = [_stamp(folder) for folder in folders]
            stamp = hashlib.sha256("\n".join(stamps).encode(errors="replace")).hexdigest()[:16]
            if self._content is None or stamp != self._stamp:
                try:
                    runs = [self._run(folder, its) for folder, its in zip(folders, stamps, strict=True)]
                    self._content = content(make_view(runs, self._networks), pictures=False)
                except UserError:
                    if self._content is None:
                        raise
                self._stamp = stamp
            return self._stamp, self._content

    def _run(self, folder: Path, stamp: str) -> RunFiles:
        if folder not in self._read or self._read[folder][0] != stamp:
            self._read[folder] = (stamp, read_run(folder))
        return self._read[folder][1]


def _stamp(folder: Path) -> str:
    parts = [str(folder)]
    for name in WATCHED:
        try:
            state = (folder / name).stat()
        except OSError:
            continue
        parts.append(f"{name} {state.st_size} {state.st_mtime_ns}")
    return "|".join(parts)


def serve(paths: Sequence[Path], port: int = DEFAULT_PORT, space: str | None = None) -> ThreadingHTTPServer:
    """A server for these runs, bound and ready; call `serve_forever()`. Port 0 takes a free one."""
    watcher = Watcher(paths, space)
    watcher.now()
    try:
        server = ThreadingHTTPServer((ADDRESS, port), _handler(watcher))
    except OSError as error:
        raise UserError(
            f"port {port} cannot be used ({error.strerror}); choose another with --port, 0 for any"
        ) from None
    server.daemon_threads = True
    return server


def _handler(watcher: Watcher) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        source = watcher

    return Handler


class _Handler(BaseHTTPRequestHandler):
    server: ThreadingHTTPServer
    source: Watcher
    server_version = "budgetnet"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:  # the base class names it so
        self._answer()

    def do_HEAD(self) -> None:  # the base class names it so
        self._answer()

    def _answer(self) -> None:
        if not self._asked_for_us():
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this server answers only to its own address\n")
            return
        routes: dict[str, Callable[[str], None]] = {"/": self._page, "/update": self._update}
        try:
            place = urlsplit(self.path)
        except ValueError:
            place = urlsplit("/?")._replace(path="")
        route = routes.get(self.path.partition("?")[0]) if not place.netloc and not place.scheme else None
        if route is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is only / here\n")
            return
        route(place.query)

    def _asked_for_us(self) -> bool:
        """Another host's name that resolves to this machine must not let its pages read ours (DNS rebinding)."""
        port = self.server.server_port
        names = [name.strip().lower() for name in self.headers.get_all("Host", [])]
        return len(names) == 1 and names[0] in (f"{ADDRESS}:{port}", f"localhost:{port}")

    def _page(self, query: str) -> None:
        _, page = self.source.now()
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", render(page, live=True).encode())

    def _update(self, query: str) -> None:
        stamp, page = self.source.now()
        if parse_qs(query).get("since") == [stamp]:
            self._send(HTTPStatus.NO_CONTENT, "text/plain", b"")
            return
        update = {"stamp": stamp, "title": page.title, "body": page.body, "data": page.data}
        self._send(HTTPStatus.OK, "application/json", json.dumps(update, allow_nan=False).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the terminal belongs to the run."""
