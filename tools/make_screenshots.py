"""Makes the pictures in docs/: both spaces, full and found, and reports in a real browser.

    python tools/make_screenshots.py runs/demo runs/fabric
    python tools/make_screenshots.py runs/demo runs/fabric --kinds --out pictures

The first run searched a resnet-fabric, the second a neural-fabric. `--kinds` makes four reports instead, of a fabric, a
model of one's own, a regression and a family of budgets, each wide, on a phone and in the dark; the small runs are made
on the way and kept in the folder. Needs Chromium and the [dev] extra.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import Page, sync_playwright
from torch import Tensor, nn

import budgetnet
from budgetnet.cli import main as budgetnet_command
from budgetnet.pictures.report import write_report

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn === 'true')"
VIEWS = {
    "": {"viewport": {"width": 1200, "height": 1400}, "color_scheme": "light", "device_scale_factor": 1.5},
    "-dark": {"viewport": {"width": 1200, "height": 1400}, "color_scheme": "dark", "device_scale_factor": 1.5},
    "-page": {"viewport": {"width": 1200, "height": 1000}, "color_scheme": "light", "device_scale_factor": 1},
    "-phone": {"viewport": {"width": 375, "height": 812}, "color_scheme": "light", "device_scale_factor": 2},
    "-phone-page": {"viewport": {"width": 375, "height": 812}, "color_scheme": "light", "device_scale_factor": 1},
}
"""Options of a browser by the end of a picture's name; a `-page` is the whole page."""


def main() -> None:
    """Reads the arguments and makes every picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("resnet", type=Path, help="a finished run on a resnet-fabric")
    parser.add_argument("fabric", type=Path, help="a finished run on a neural-fabric")
    parser.add_argument("--kinds", action="store_true", help="reports of every kind of run, to look at")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.kinds:
        for name, runs in kinds(options.resnet, options.out).items():
            photograph(runs, options.out / name, ("", "-dark", "-page", "-phone", "-phone-page"))
        return
    for name, run in (("resnet-fabric", options.resnet), ("neural-fabric", options.fabric)):
        draw(space_of(run), options.out / f"{name}-full.png", shape_of(run))
        draw(str(run), options.out / f"{name}-found.png")
    photograph([options.resnet], options.out / "report", ("", "-dark", "-page", "-phone"))


def space_of(run: Path) -> str:
    """The space that a run searched."""
    return str(json.loads((run / "config.json").read_text())["config"]["space"])


def shape_of(run: Path) -> str:
    """The shape of one input, as the command line takes it."""
    return "x".join(map(str, json.loads((run / "data.json").read_text())["input_shape"]))


def draw(what: str, out: Path, shape: str | None = None) -> None:
    """One drawing."""
    command("draw", what, "-o", str(out), "--force", *(["--input", shape] if shape else []))


def command(*arguments: str) -> None:
    """A command of budgetnet, which has to succeed."""
    if budgetnet_command(list(arguments)) != 0:
        raise SystemExit(f"budgetnet {' '.join(arguments)} failed")


def kinds(fabric: Path, out: Path) -> dict[str, list[Path]]:
    """The runs of each kind of report; those that are not there yet are made."""
    made = {"own": own_model, "regression": regression, "family": family}
    for name, make in made.items():
        if not (out / "runs" / name).exists():
            make(out / "runs" / name)
    members = sorted(path.parent for path in (out / "runs" / "family").glob("*/summary.json"))
    return {"fabric": [fabric], "own": [out / "runs" / "own"], "regression": [out / "runs" / "regression"]} | {
        "family": members
    }


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Small images whose class is where their bright spot lies."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    pixels = torch.randn(count, 3, 16, 16, generator=generator)
    for place, label in enumerate(labels.tolist()):
        top, left = divmod(label, 2)
        pixels[place, :, 8 * top : 8 * top + 8, 8 * left : 8 * left + 8] += 0.35
    return pixels, labels


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The block beside its skip."""
        return torch.relu(x + self.body(x))


def own_model(out: Path) -> None:
    """A small residual network, trained for a while, at half of its cost."""
    torch.manual_seed(0)
    head = (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 4))
    stem = (nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU())
    model = nn.Sequential(*stem, *(Residual(16) for _ in range(3)), *head)
    inputs, labels = images(2000, 0)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for epoch in range(4):
        for rows in torch.randperm(2000, generator=torch.Generator().manual_seed(epoch)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    net = budgetnet.from_model(model, inputs[:2])
    names = ("north west", "north east", "south west", "south east")
    data = ((inputs, labels), images(500, 1), images(500, 2))
    budgetnet.search(net, *data, budgets=["macs<=50%", "size<=60%"], classes=names, epochs=4, out=out, quiet=True)


def regression(out: Path) -> None:
    """A table with one number to predict."""
    generator = torch.Generator().manual_seed(0)

    def table(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 8, generator=generator)
        return x, (x[:, :1] * x[:, 1:2] + x[:, 2:3].sin() + 0.1 * torch.randn(count, 1, generator=generator))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    net = budgetnet.from_model(model, torch.zeros(2, 8), trained=False)
    data = (table(2000), table(400), table(400))
    budgetnet.search(
        net, *data, budgets="params<=40%", loss="mse", metric="r2", lr=0.01, epochs=12, out=out, quiet=True
    )


def family(out: Path) -> None:
    """A network for each of several budgets."""
    space = ("--space", "resnet-fabric:width=2,channels=4", "--data", "embedded:limit=1500,size=16", "--quiet")
    budgets = ("--budgets", "macs<=25%", "macs<=50%", "macs<=75%")
    command("search", *space, *budgets, "--epochs", "3", "--out", str(out))


@contextmanager
def browsing() -> Iterator[Any]:
    """Debian's chromium, headless."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def photograph(runs: list[Path], out: Path, views: tuple[str, ...]) -> None:
    """The report of some runs: what a reader sees first, or the whole page, as `views` say."""
    with tempfile.TemporaryDirectory() as folder, browsing() as browser:
        address = write_report(runs, Path(folder) / "report.html").as_uri()
        for end in views:
            page = browser.new_context(**VIEWS[end]).new_page()
            page.goto(address)
            wait_for_charts(page)
            target = out.with_name(f"{out.name}{end}.png")
            page.screenshot(path=target, full_page=end.endswith("-page"))
            print(target)


def wait_for_charts(page: Page) -> None:
    """Playwright's own waiting evaluates text in the page, which the page's policy forbids."""
    while not page.evaluate(DRAWN):
        page.wait_for_timeout(50)


if __name__ == "__main__":
    main()
