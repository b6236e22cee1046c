"""Makes the pictures in docs/: both spaces, full and found, and the report of a run in a real browser.

    python tools/make_screenshots.py runs/demo runs/fabric

The first run searched a resnet-fabric, the second a neural-fabric. Needs Chromium and the [dev] extra.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from budgetnet.cli import main as budgetnet
from budgetnet.pictures.report import write_report

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn === 'true')"


def main() -> None:
    """Reads the arguments and makes every picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("resnet", type=Path, help="a finished run on a resnet-fabric")
    parser.add_argument("fabric", type=Path, help="a finished run on a neural-fabric")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    for name, run in (("resnet-fabric", options.resnet), ("neural-fabric", options.fabric)):
        draw(space_of(run), options.out / f"{name}-full.png", shape_of(run))
        draw(str(run), options.out / f"{name}-found.png")
    photograph(options.resnet, options.out)


def space_of(run: Path) -> str:
    """The space that a run searched."""
    return str(json.loads((run / "config.json").read_text())["config"]["space"])


def shape_of(run: Path) -> str:
    """The shape of one input, as the command line takes it."""
    return "x".join(map(str, json.loads((run / "data.json").read_text())["input_shape"]))


def draw(what: str, out: Path, shape: str | None = None) -> None:
    """One drawing."""
    arguments = ["draw", what, "-o", str(out), "--force", *(["--input", shape] if shape else [])]
    if budgetnet(arguments) != 0:
        raise SystemExit(f"{out} was not drawn")


def photograph(run: Path, out: Path) -> None:
    """The report: what a reader sees first, the whole page, and the first view in the dark."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = write_report([run], Path(folder) / "report.html").as_uri()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for name, scheme, whole in (
            ("report", "light", False),
            ("report-dark", "dark", False),
            ("report-page", "light", True),
        ):
            context = browser.new_context(
                viewport={"width": 1200, "height": 1000}, color_scheme=scheme, device_scale_factor=1 if whole else 1.5
            )
            page = context.new_page()
            page.goto(address)
            wait_for_charts(page)
            page.screenshot(path=out / f"{name}.png", full_page=whole)
            print(out / f"{name}.png")
        browser.close()


def wait_for_charts(page: Page) -> None:
    """Playwright's own waiting evaluates text in the page, which the page's policy forbids."""
    while not page.evaluate(DRAWN):
        page.wait_for_timeout(50)


if __name__ == "__main__":
    main()
