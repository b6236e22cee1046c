"""`watch` in a real browser while a real search is running."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from budgetnet.pictures.watch import serve
from tests.pictures.browser.conftest import SEARCH, Tab, colours, violations
from tests.run_folders import make_run

POINTS = "[...document.querySelectorAll('#run-0-dynamics-0 path')].map(e => e.getAttribute('d')).join().length"


def test_the_page_follows_a_search(tab: Callable[..., Tab], tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "live"
    command = [sys.executable, "-m", "budgetnet", *SEARCH, "--out", str(folder)]
    search = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        while '"epoch", "phase": "search"' not in _records(folder):
            assert search.poll() is None, "the search ended before its first epoch did"
            time.sleep(0.02)
        search.send_signal(signal.SIGSTOP)  # holds its breath until the page is open, however slow this machine is
        with serve([folder], port=0) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            try:
                _follow(tab(), f"http://127.0.0.1:{server.server_address[1]}/", search)
            finally:
                server.shutdown()
                thread.join()
    finally:
        search.kill()
        search.wait()


def _records(folder: Path) -> str:
    path = folder / "records.jsonl"
    return path.read_text() if path.exists() else ""


def _follow(seen: Tab, address: str, search: subprocess.Popen[bytes]) -> None:
    page = seen.page
    seen.open(address)
    assert seen.words("p.state") == "not finished"
    search.send_signal(signal.SIGCONT)
    page.evaluate("window.sameDocument = true")
    page.wait_for_selector("#run-0-dynamics-0 svg path", timeout=60_000)
    early = page.evaluate(POINTS)
    seen.until(f"{POINTS} > {early}", 120)
    assert page.locator("#run-0-canvas .edge").count() == 28
    assert colours(seen.picture("#run-0-canvas")) > 50
    assert violations(page) == []
    seen.until("document.querySelector('.sentence').textContent.includes('fits its budget')", 180)
    assert page.evaluate("window.sameDocument"), "updated in place, not loaded again"
    page.locator("#run-0-slider").focus()
    page.keyboard.press("Home")
    assert seen.words("#run-0-epoch").startswith("epoch ")
    page.locator("#run-0-canvas").focus()
    page.keyboard.press("ArrowRight")
    assert "probability" in seen.words("#tip")
    assert seen.errors == []
    assert all(request.startswith(address) for request in seen.requests)


def test_a_reader_is_not_disturbed(tab: Callable[..., Tab], tmp_path: Path) -> None:
    """New records leave the slider where the reader put it, and what is open stays open."""
    folder = make_run(tmp_path / "run")
    with serve([folder], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            seen = tab(viewport={"width": 390, "height": 800}).open(f"http://127.0.0.1:{server.server_address[1]}/")
            page = seen.page
            seen.until("document.documentElement.dataset.live === 'on'")
            page.get_by_text("Versions and machine").click()
            page.locator("#run-0-slider").focus()
            page.keyboard.press("Home")
            before = seen.words("#run-0-epoch")
            config = (folder / "config.json").read_text().replace("made-up", "made-up-again")
            (folder / "config.json").write_text(config)
            page.get_by_text("made-up-again").wait_for(timeout=60_000)
            assert seen.words("#run-0-epoch") == before
            assert page.get_by_text("x86_64").is_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            assert seen.errors == []
        finally:
            server.shutdown()
            thread.join()
