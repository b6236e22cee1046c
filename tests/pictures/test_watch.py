"""`watch` over real sockets: what it serves, and what it refuses."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from budgetnet.errors import UserError
from budgetnet.pictures.watch import ADDRESS, Watcher, serve
from budgetnet.records.records import Record
from tests.run_folders import make_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watched")
    make_run(folder / "runs" / "a", epochs=6)
    make_run(folder / "runs" / "b", epochs=6, stop_after=4)
    (folder / "secret.txt").write_text("the secret")
    return folder / "runs"


@pytest.fixture(scope="module")
def server(runs: Path) -> Iterator[ThreadingHTTPServer]:
    with serve([runs], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: ThreadingHTTPServer, path: str, host: str | None = None, method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    port = server.server_address[1]
    with closing(http.client.HTTPConnection(ADDRESS, port, timeout=30)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for value in [host] if host is not None else [f"{ADDRESS}:{port}"]:
            connection.putheader("Host", value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_the_page_shows_every_run(server: ThreadingHTTPServer) -> None:
    status, headers, text = ask(server, "/")
    assert status == 200
    assert headers["Content-Type"].startswith("text/html")
    assert headers["X-Frame-Options"] == "DENY"
    assert "2 runs" in text
    assert "fits its budget" in text
    assert "not finished" in text
    assert "connect-src &#39;self&#39;" in text
    assert ask(server, "/", method="HEAD")[2] == ""


def test_an_update_comes_only_when_something_changed(runs: Path, server: ThreadingHTTPServer) -> None:
    status, _, text = ask(server, "/update?since=")
    update = json.loads(text)
    assert status == 200
    assert {"stamp", "title", "body", "data"} == set(update)
    assert ask(server, f"/update?since={update['stamp']}")[0] == 204
    with (runs / "b" / "records.jsonl").open("a") as file:
        file.write(Record("step", "search", 4, 21, 4.0, {"loss": 0.123456}).to_json() + "\n")
    status, _, text = ask(server, f"/update?since={update['stamp']}")
    assert status == 200
    assert "0.12346" in json.dumps(json.loads(text)["data"]["charts"])
    make_run(runs / "c", epochs=4)
    assert "3 runs" in json.loads(ask(server, "/update")[2])["body"]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/runs/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/..\\secret.txt",
        "//etc/passwd",
        "///etc/passwd",
        "/etc/passwd",
        "/a/records.jsonl",
        "/update/../../secret.txt",
        "/?../secret.txt#",
        "http://elsewhere.example/",
        "secret.txt",
        "*",
        "//[",
    ],
)
def test_there_are_no_files_to_be_had(path: str, server: ThreadingHTTPServer, runs: Path) -> None:
    status, _, text = ask(server, path)
    assert status == (200 if path.startswith("/?") else 404)
    assert "the secret" not in text
    assert "root:x:" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(method: str, server: ThreadingHTTPServer) -> None:
    assert ask(server, "/", method=method)[0] == 501


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}", ""]
)
def test_other_names_are_refused(host: str, server: ThreadingHTTPServer) -> None:
    status, _, text = ask(server, "/", host=host.format(port=server.server_address[1]))
    assert status == 403
    assert "run" not in text


def test_own_names_are_served(server: ThreadingHTTPServer) -> None:
    assert ask(server, "/update", host=f"LocalHost:{server.server_address[1]}")[0] == 200


def test_a_request_without_a_host_is_refused(server: ThreadingHTTPServer) -> None:
    with closing(socket.create_connection((ADDRESS, server.server_address[1]), timeout=30)) as link:
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 403 " in link.recv(200).splitlines()[0] + b" "


def test_only_this_machine_is_listened_to(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", server.server_address[1]), timeout=5)


def test_watching_changes_no_file(server: ThreadingHTTPServer, runs: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in sorted(runs.rglob("*"))}

    before = state()
    ask(server, "/")
    ask(server, "/update")
    assert state() == before


def test_a_port_in_use_and_a_folder_that_is_no_run(server: ThreadingHTTPServer, runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--port"):
        serve([runs], server.server_address[1])
    with pytest.raises(UserError, match="not a run folder"):
        serve([tmp_path], 0)


def test_a_run_that_is_deleted_while_it_is_watched_leaves_the_page(tmp_path: Path) -> None:
    watcher = Watcher([make_run(tmp_path / "run", epochs=4)])
    _, before = watcher.now()
    shutil.rmtree(tmp_path / "run")
    _, after = watcher.now()
    assert after is before
