"""Downloads from a real server on this machine."""

import hashlib
import io
import socket
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from budgetnet.data import DATASETS, download, load
from budgetnet.data.download import ARCHIVES, Archive, obtain


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


def tar(file: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def fail_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")


def content(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*")}


def test_a_tar_file_is_unpacked_in_place(server, tmp_path: Path) -> None:
    folder, address = server
    md5 = tar(folder / "set.tar.gz", {"set-py/a": b"A" * 3_000_000, "set-py/b": b"B"})
    root = tmp_path / "new" / "root"
    assert obtain(Archive(f"{address}/set.tar.gz", md5, "set-py"), root) == root / "set-py"
    assert content(root) == {"set-py", "set-py/a", "set-py/b"}
    assert (root / "set-py" / "a").read_bytes() == b"A" * 3_000_000


def test_a_plain_file_is_put_in_place(server, tmp_path: Path) -> None:
    folder, address = server
    (folder / "labels.gz").write_bytes(b"labels")
    md5 = hashlib.md5(b"labels", usedforsecurity=False).hexdigest()
    obtain(Archive(f"{address}/labels.gz", md5, "set/labels.gz"), tmp_path / "root")
    assert (tmp_path / "root/set/labels.gz").read_bytes() == b"labels"
    assert content(tmp_path / "root") == {"set", "set/labels.gz"}


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "set").write_text("mine")
    obtain(Archive("http://127.0.0.1:1/set", "0" * 32, "set"), tmp_path)
    assert (tmp_path / "set").read_text() == "mine"


def test_another_md5_is_refused_and_nothing_stays(server, tmp_path: Path, refuses) -> None:
    folder, address = server
    md5 = tar(folder / "set.tar.gz", {"set/a": b"A"})
    with refuses(f"{address}/set.tar.gz", md5, "0" * 32):
        obtain(Archive(f"{address}/set.tar.gz", "0" * 32, "set"), tmp_path / "root")
    assert content(tmp_path / "root") == set()


@pytest.mark.parametrize("member", ["../evil", "set/../../evil", "/evil"])
def test_a_tar_file_cannot_write_outside(server, tmp_path: Path, member: str, refuses) -> None:
    folder, address = server
    md5 = tar(folder / "set.tar.gz", {"set/a": b"A", member: b"E"})
    archive = Archive(f"{address}/set.tar.gz", md5, "set")
    if member.startswith("/"):
        obtain(archive, tmp_path / "root")  # the leading slash is dropped: it lands in the folder that is thrown away
        assert content(tmp_path / "root") == {"set", "set/a"}
    else:
        with refuses(archive.url):
            obtain(archive, tmp_path / "root")
        assert content(tmp_path / "root") == set()
    assert not list(tmp_path.rglob("evil"))
    assert not Path("/evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar_file_lead_nowhere(server, tmp_path: Path, kind: bytes) -> None:
    folder, address = server
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(folder / "set.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = kind, str(outside)
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("set/link/evil"), io.BytesIO())
    md5 = hashlib.md5((folder / "set.tar.gz").read_bytes(), usedforsecurity=False).hexdigest()
    obtain(Archive(f"{address}/set.tar.gz", md5, "set"), tmp_path / "root")
    assert content(tmp_path / "root") == {"set", "set/link", "set/link/evil"}, "a folder of its own"
    assert not content(outside)


def test_a_tar_file_without_the_folder_is_refused(server, tmp_path: Path, refuses) -> None:
    folder, address = server
    md5 = tar(folder / "set.tar.gz", {"other/a": b"A"})
    with refuses(f"{address}/set.tar.gz"):
        obtain(Archive(f"{address}/set.tar.gz", md5, "set"), tmp_path / "root")
    assert content(tmp_path / "root") == set()


def test_no_file_and_no_server_are_said_so(server, tmp_path: Path, refuses) -> None:
    _, address = server
    with refuses(f"{address}/none.tar.gz", "not found", "another machine"):
        obtain(Archive(f"{address}/none.tar.gz", "0" * 32, "set"), tmp_path / "root")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        port = closed.getsockname()[1]
        with refuses(f"127.0.0.1:{port}", "refused", "another machine"):
            obtain(Archive(f"http://127.0.0.1:{port}/x.tar.gz", "0" * 32, "set"), tmp_path / "root")
    assert content(tmp_path / "root") == set()


def test_the_official_addresses_are_secure_and_checked() -> None:
    assert set(ARCHIVES) == {name for name, source in DATASETS.items() if "download" in source.accepts}
    for archives in ARCHIVES.values():
        for archive in archives:
            assert archive.url.startswith("https://")
            assert len(bytes.fromhex(archive.md5)) == 16


def test_only_known_data_sets_can_be_downloaded(tmp_path: Path, refuses) -> None:
    with refuses("lfw-parts", "cifar100"):
        download("lfw-parts", tmp_path)


def test_nothing_is_downloaded_when_the_files_are_there(cifar10, monkeypatch) -> None:
    fail_every_request(monkeypatch)
    assert len(load("cifar10:download=true,validation=6", cifar10[0]).train) == 34


def test_download_is_attempted_when_asked_for(tmp_path: Path, monkeypatch, refuses) -> None:
    fail_every_request(monkeypatch)
    with refuses("cifar-10-python.tar.gz", "refused"):
        load("cifar10:download=true", tmp_path)
    assert content(tmp_path) == set()
