"""A real Chromium, headless, and pages that remember what went wrong in them."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import budgetnet
from budgetnet.cli import main
from budgetnet.pictures.report import write_report
from tests.run_folders import make_run
from tests.small_runs import mlp, short, vectors

FLAGS = """
--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update
--disable-sync
""".split()  # noqa: SIM905

SEARCH = (
    *("search", "--space", "resnet-fabric:width=2,channels=4", "--data", "embedded:limit=640,size=16"),
    *("--budget", "macs<=50%", "--budget", "steps(4)<=80%", "--epochs", "3", "--batch-size", "64", "--quiet"),
)
"""A real search of a few seconds."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium; where there is none the tests skip with the reason, but never in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program, reason = None, "the package playwright is not installed: pip install -e '.[dev]'"
    else:
        reason = "there is no browser: apt-get install chromium"
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield chromium
        chromium.close()


@dataclass
class Tab:
    """A page, and what happened in it."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, address: str) -> Tab:
        """Goes there and waits until every chart is drawn."""
        self.page.goto(address)
        if self.page.evaluate("typeof vegaEmbed") == "function":
            self.until("[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn === 'true')")
        return self

    def until(self, condition: str, seconds: float = 60) -> None:
        """Waits; Playwright's own waiting evaluates text in the page, which the page's policy forbids."""
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"{condition} did not come true in {seconds} s"
            self.page.wait_for_timeout(50)

    def words(self, selector: str) -> str:
        """The visible text of the first such element."""
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def picture(self, selector: str) -> Image.Image:
        """An element as it looks now."""
        return Image.open(io.BytesIO(self.page.locator(selector).first.screenshot())).convert("RGB")


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    """Makes tabs; options are those of a Playwright context."""
    contexts = []

    def make(**options: Any) -> Tab:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        seen = Tab(context.new_page())
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on(
            "console",
            lambda message: seen.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        seen.page.on("dialog", lambda dialog: (seen.errors.append("a dialog"), dialog.dismiss()))
        return seen

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a real search, finished."""
    folder = tmp_path_factory.mktemp("real") / "run"
    assert main([*SEARCH, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def own_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained model of a user's with a branch, made smaller from Python."""
    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("own") / "run"
    net = budgetnet.from_model(Branched(), torch.zeros(2, 6))
    data = (vectors(160), vectors(64, 1), vectors(64, 2))
    budgetnet.search(net, *data, budgets=["macs<=60%", "size<=90%"], classes="abc", epochs=2, out=out, quiet=True)
    return out


@pytest.fixture(scope="session")
def regression_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression on a super network that a user made by hand, with a metric of its own."""
    out = tmp_path_factory.mktemp("regression") / "run"
    parts = [(x, x[:, :3]) for x, _ in (vectors(160), vectors(64, 1), vectors(64, 2))]
    budgetnet.search(mlp(), *parts, budgets="params<=70%", loss="mse", metric="r2", recipe=short(), out=out, quiet=True)
    return out


@pytest.fixture(scope="session")
def pages(
    real_run: Path, own_run: Path, regression_run: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The address of a report of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    swept = [make_run(folder / f"seed-{seed}", seed=seed) for seed in range(2)]
    swept.append(make_run(folder / "killed", stop_after=8))
    runs = {"fabric": [real_run], "own": [own_run], "regression": [regression_run], "sweep": [real_run, *swept]}
    return {name: write_report(paths, folder / f"{name}.html").as_uri() for name, paths in runs.items()}


class Branched(nn.Module):
    """A model with a layer that can be narrowed and a branch that can be dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)
        self.branch = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 12))

    def forward(self, x: Tensor) -> Tensor:
        """The branch beside its skip."""
        x = torch.relu(self.first(x))
        found: Tensor = self.last(x + self.branch(x))
        return found


def colours(image: Image.Image) -> int:
    """How many colours a picture has: few if it is blank."""
    return len(image.getcolors(1 << 24) or [])


def violations(page: Any) -> list[str]:
    """What axe-core finds."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in found for node in one["nodes"]]
