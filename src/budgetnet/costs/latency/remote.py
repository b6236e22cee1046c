"""A device that runs `budgetnet meter`: networks go there as ONNX files, and samples come back.

All times are taken on the device, so that the link's delay is in none of them. A device that is busy, restarted or out
of reach is asked again for a while, and then the run ends with a sentence.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from budgetnet.costs.latency.meter.child import PROVIDER, Request
from budgetnet.costs.latency.meter.program import TOKEN
from budgetnet.costs.latency.timing import Series
from budgetnet.errors import UserError

TOKEN_FILE = f"{TOKEN}_FILE"
"""The environment variable that may name a file which holds the token."""

PORT = 8700
"""The meter's port where an address has none."""
PATIENCE = 60.0
"""Seconds of silence after which a target counts as gone."""
BUSY_PATIENCE = 900.0
"""Seconds to wait for a target that measures for others."""
PAUSES = (0.2, 5.0)
"""The first and the longest pause between two attempts; each is twice the one before."""
TIMEOUT = 300.0
"""Seconds that one answer may take: more than any measurement that a meter allows by default."""
LONGEST = 1 << 24
"""Bytes of the longest answer."""
SOFTWARE = ("python", "numpy", "onnxruntime")
"""Versions that a certificate takes from a target's answer; whatever else is in it is left out."""
KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
"""A device that loses its power during a measurement says nothing: it is missed after half a minute."""


class Answer(NamedTuple):
    """The status and the value of an answer, and after how many seconds a busy target wants to be asked again."""

    status: int
    value: Mapping[str, Any]
    retry_after: float


@dataclass(frozen=True)
class Target:
    """A meter by its address, `http://host:port`.

    Args:
        url: the address as the user wrote it.
    """

    url: str

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        plain = parts.path in ("", "/") and not (parts.query or parts.fragment or parts.username or parts.password)
        if parts.scheme != "http" or not parts.hostname or port == -1 or not plain:
            raise UserError(f"the target {self.url!r} is not an address such as http://host:{PORT}; correct it")

    def machine(self) -> Mapping[str, Any]:
        """The machine behind the address; asking for it shows that the meter is there and knows the token."""
        return _machine(self._ask("GET", "/machine", b""), self.url)

    def series(
        self,
        network: bytes,
        reference: bytes,
        *,
        batch: int,
        threads: int,
        seconds: float,
        rounds: int,
        provider: str = PROVIDER,
    ) -> tuple[Series, Mapping[str, Any]]:
        """Times of a network and of the reference on the target, and the machine that took them.

        Args:
            network: the ONNX file to measure.
            reference: the ONNX file of the reference network.
            batch: inputs at a time.
            threads: threads of the runtime.
            seconds: how long to measure.
            rounds: in how many fresh sessions.
            provider: the execution provider of ONNX Runtime there.
        """
        request = Request("latency", batch, threads, seconds, rounds, provider, len(reference))
        value = self._ask("POST", "/measure", request.to_bytes() + reference + network)
        return _series(value, self.url), _machine(value, self.url)

    def memory(
        self, network: bytes, reference: bytes, *, batch: int, threads: int = 1
    ) -> tuple[int, Mapping[str, Any]]:
        """Bytes that loading and running a network adds to a process on the target, and the machine.

        Args:
            network: The ONNX file to measure.
            reference: The ONNX file of the reference network, which runs before it.
            batch: Inputs at a time.
            threads: Threads of the runtime.

        Returns:
            The bytes, and the machine that found them.
        """
        request = Request("memory", batch, threads, 1.0, 1, PROVIDER, len(reference))
        value = self._ask("POST", "/measure", request.to_bytes() + reference + network)
        found = value.get("memory")
        if type(found) is not int or found < 0:
            raise _strange(self.url)
        return found, _machine(value, self.url)

    def _ask(self, method: str, path: str, body: bytes) -> Mapping[str, Any]:
        """One answer: asked again while the target is silent or busy, for as long as patience lasts."""
        token, begin, pauses = read_token(), time.monotonic(), _Pauses()
        silent_since = None
        while True:
            try:
                answer = self._once(method, path, body, token)
            except (OSError, http.client.HTTPException) as error:
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > PATIENCE:
                    raise UserError(
                        f"the target {self.url} has not answered for {PATIENCE:.0f} s ({_reason(error)}); start "
                        "`budgetnet meter` there and check the link, then go on with --resume"
                    ) from None
                time.sleep(pauses.next())
                continue
            if answer.status == http.HTTPStatus.SERVICE_UNAVAILABLE:
                silent_since = None
                if time.monotonic() - begin > BUSY_PATIENCE:
                    raise UserError(
                        f"the target {self.url} has measured for others for {BUSY_PATIENCE:.0f} s; run fewer searches "
                        "at a time on it, then go on with --resume"
                    )
                time.sleep(answer.retry_after)
                continue
            return self._value(answer)

    def _value(self, answer: Answer) -> Mapping[str, Any]:
        if answer.status == http.HTTPStatus.OK:
            return answer.value
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            raise UserError(
                f"the target {self.url} does not know the token of this run; set {TOKEN} (or the file that "
                f"{TOKEN_FILE} names) to what the meter showed when it was started"
            )
        said = re.sub(r"[^ -~]", "", str(answer.value.get("refused", "")))[:200].rstrip(". ")
        raise UserError(f"the target {self.url} refused the network ({said or answer.status}); see its log")

    def _once(self, method: str, path: str, body: bytes, token: str) -> Answer:
        parts = urllib.parse.urlsplit(self.url)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port or PORT, timeout=TIMEOUT)
        try:
            _connect(connection)
            # refused before all of it was sent: the answer says why, if it came through
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            said = response.read(LONGEST + 1)
            return Answer(response.status, _json(said, self.url), _retry_after(response.headers.get("Retry-After", "")))
        finally:
            connection.close()


class _Pauses:
    """Pauses that double up to a limit."""

    def __init__(self) -> None:
        self._next = PAUSES[0]

    def next(self) -> float:
        pause, self._next = self._next, min(2 * self._next, PAUSES[1])
        return pause


def read_token() -> str:
    """The token of the meter, from the environment or from the file that it names; never from a command line.

    Returns:
        The token, which is put into a header and nowhere else.
    """
    if TOKEN in os.environ:
        token = os.environ[TOKEN].strip()
    elif TOKEN_FILE in os.environ:
        try:
            token = Path(os.environ[TOKEN_FILE]).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            raise UserError(f"the file that {TOKEN_FILE} names cannot be read; check its path") from None
    else:
        raise UserError(
            f"a target needs its token; set {TOKEN} (or {TOKEN_FILE} to a file that holds it) to what the meter showed "
            "when it was started"
        )
    if not token or not token.isascii() or not token.isprintable():
        raise UserError(f"the token in {TOKEN} or its file is empty or has characters that no token has; set it again")
    return token


def _connect(connection: http.client.HTTPConnection) -> None:
    connection.connect()
    assert connection.sock is not None
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _json(said: bytes, url: str) -> Mapping[str, Any]:
    try:
        value = json.loads(said or b"{}")
    except (ValueError, RecursionError):
        raise _strange(url) from None
    if len(said) > LONGEST or not isinstance(value, dict):
        raise _strange(url)
    return value


def _series(value: Mapping[str, Any], url: str) -> Series:
    try:
        rows: list[Any] = [
            np.array(value[f.name], np.bool_ if f.name == "disturbed" else np.float64) for f in fields(Series)
        ]
        series = Series(*rows)
    except (KeyError, ValueError, TypeError):
        raise _strange(url) from None
    times = np.stack([series.network, series.reference]) if len({row.shape for row in rows}) == 1 else np.zeros(1)
    if times.ndim != 2 or not times.size or not (np.isfinite(times) & (times > 0)).all():
        raise _strange(url)
    if not (np.isfinite(series.processor) & (series.processor >= 0)).all():
        raise _strange(url)
    return series


def _machine(value: Mapping[str, Any], url: str) -> Mapping[str, Any]:
    """What the target says about its machine: a few short texts and numbers, whatever else is there."""
    found = value.get("machine")
    if not isinstance(found, dict) or not isinstance(found.get("processor"), str):
        raise _strange(url)
    versions = found.get("versions")
    named = {key: found.get(key) for key in ("processor", "architecture", "system", "cores", "memory")}
    kept = {key: item if isinstance(item, int) else _short(item) for key, item in named.items() if item is not None}
    software = versions if isinstance(versions, dict) else {}
    return {**kept, "versions": {key: _short(software[key]) for key in SOFTWARE if key in software}}


def _short(item: Any) -> str:
    return re.sub(r"[^ -~]", "", str(item))[:120]


def _strange(url: str) -> UserError:
    return UserError(f"{url} answered as no meter of this version does; run the same version of budgetnet there")


def _retry_after(text: str) -> float:
    return min(max(float(text), 0.1), 10.0) if text.isascii() and text.isdigit() else 1.0


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error).rstrip(".") or type(error).__name__
