"""The client of a meter, with real meters that are busy, restarted, replaced or gone."""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from budgetnet.costs.latency import remote, runtimes, timing
from budgetnet.costs.latency.remote import TOKEN_FILE, Target
from budgetnet.errors import UserError
from tests.meters import TOKEN, Meter, meter, start_meter


@pytest.fixture(scope="module")
def reference() -> bytes:
    return runtimes.reference_file()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meter]:
    with meter(tmp_path_factory.mktemp("meter")) as found:
        yield found


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUDGETNET_METER_TOKEN", TOKEN)


def measure(target: Target, reference: bytes) -> timing.Series:
    return target.series(reference, reference, batch=1, threads=1, seconds=0.1, rounds=2)[0]


def test_samples_and_the_machine_come_back(running: Meter, reference: bytes) -> None:
    target = Target(running.url)
    series, machine = target.series(reference, reference, batch=1, threads=1, seconds=0.2, rounds=2)
    assert len(series) >= timing.PAIRS[0]
    assert float(timing.ratio(series)) == pytest.approx(1, rel=0.25)
    assert machine == target.machine()
    assert "hostname" not in machine
    memory, _ = target.memory(reference, reference, batch=1)
    assert 0 <= memory < 50e6


def test_the_token_may_be_in_a_file(running: Meter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUDGETNET_METER_TOKEN")
    with pytest.raises(UserError, match="needs its token"):
        Target(running.url).machine()
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    assert Target(running.url).machine()["cores"] >= 1
    (tmp_path / "token").write_text("another-token-than-this")
    with pytest.raises(UserError, match="does not know the token") as error:
        Target(running.url).machine()
    assert "another-token" not in str(error.value)
    (tmp_path / "token").write_text("\0")
    with pytest.raises(UserError, match="set it again"):
        Target(running.url).machine()
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "none"))
    with pytest.raises(UserError, match="cannot be read"):
        Target(running.url).machine()


@pytest.mark.parametrize(
    "url",
    [
        "pi:8700",
        "https://pi:8700",
        "http://",
        "http://pi:port",
        "http://me:secret@pi:8700",
        "http://pi:8700/x",
        "file:///x",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UserError, match="not an address"):
        Target(url)


def test_a_network_that_the_meter_refuses_is_a_sentence(running: Meter, reference: bytes) -> None:
    with pytest.raises(UserError, match=r"refused the network \(.*ONNX file.*\); see its log"):
        Target(running.url).series(b"nonsense", reference, batch=1, threads=1, seconds=0.1, rounds=2)


def test_a_busy_meter_is_asked_again(running: Meter, reference: bytes) -> None:
    found: list[int] = []
    target = Target(running.url)
    threads = [threading.Thread(target=lambda: found.append(len(measure(target, reference)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert min(found) >= timing.PAIRS[0]


def test_a_meter_that_is_killed_and_started_again_is_found_again(tmp_path: Path, reference: bytes) -> None:
    first = start_meter(tmp_path)
    found: list[int] = []

    def long() -> None:
        target = Target(first.url)
        series, _ = target.series(reference, reference, batch=256, threads=1, seconds=4.0, rounds=2)
        found.append(len(series))

    thread = threading.Thread(target=long)
    thread.start()
    time.sleep(0.7)
    first.stop()
    assert not found
    time.sleep(0.5)
    second = start_meter(tmp_path, port=first.address[1])
    thread.join()
    second.stop()
    assert len(found) == 1


def test_a_target_that_is_gone_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(UserError, match=r"has not answered for .*; start `budgetnet meter` there .* --resume"):
            Target(url).machine()
        assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"machine": 3}',
        b'{"machine": {"processor": "x"}, "network": [1], "reference": [1, 2], "disturbed": [0], "processor": [1]}',
        b'{"machine": {"processor": "x"}, "network": [NaN], "reference": [1], "disturbed": [0], "processor": [1]}',
        b'{"machine": {"processor": "x"}, "network": [-1], "reference": [1], "disturbed": [0], "processor": [1]}',
        b'{"machine": {"processor": "x"}, "network": [], "reference": [], "disturbed": [], "processor": []}',
        b'{"machine": {"processor": "x"}, "network": "abc", "reference": [1], "disturbed": [0], "processor": [1]}',
    ],
)
def test_something_else_behind_the_address_is_a_sentence(answer: bytes, reference: bytes) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(UserError, match="as no meter of this version does"):
                measure(Target(f"http://127.0.0.1:{server.server_port}"), reference)
        finally:
            server.shutdown()
            thread.join()
