"""The report of a real search, opened from disk in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from budgetnet.cli import commands, main
from budgetnet.pictures.draw import Picture, save
from budgetnet.pictures.report import write_report
from budgetnet.spaces import build
from tests.pictures.browser.conftest import Tab, colours, violations
from tests.run_folders import make_run
from tests.segmented import search_options, write_folders

MakeTab = Callable[..., Tab]

MIDDLE_OF_EDGE = """edge => {
  const line = edge.querySelector('.line');
  const point = line.getPointAtLength(line.getTotalLength() / 2).matrixTransform(line.getScreenCTM());
  return [point.x, point.y];
}"""


@pytest.fixture(scope="module")
def address(pages: dict[str, str]) -> str:
    return pages["fabric"]


@pytest.fixture(scope="module")
def comparison(pages: dict[str, str]) -> str:
    return pages["sweep"]


def test_it_opens_complete_and_asks_for_nothing(address: str, tab: MakeTab) -> None:
    seen = tab().open(address)
    page = seen.page
    assert seen.requests == [address]
    plots = page.locator(".plot")
    assert plots.count() >= 6
    for i in range(plots.count()):
        assert plots.nth(i).locator("svg path, svg rect").count() > 3, i
    assert page.locator("#run-0-canvas .edge").count() == 28
    assert page.locator("#run-0-canvas [data-node]").count() == 7
    assert "fits its budget" in seen.words(".sentence")
    assert colours(seen.picture("#run-0-canvas")) > 50
    for i in range(min(plots.count(), 4)):
        assert colours(seen.picture(f".plot >> nth={i}")) > 20
    assert seen.errors == []


def test_the_slider_moves_the_picture(address: str, tab: MakeTab) -> None:
    seen = tab().open(address)
    page = seen.page
    final, picture = seen.words("#run-0-epoch"), seen.picture("#run-0-canvas")
    assert final.startswith("found architecture")
    page.locator("#run-0-slider").focus()
    page.keyboard.press("Home")
    first = seen.words("#run-0-epoch")
    assert first.startswith("epoch ")
    assert "bits per edge" in first
    assert seen.picture("#run-0-canvas").tobytes() != picture.tobytes()
    kept = page.locator("#run-0-canvas .edge:not(.dropped)").count()
    assert f"{kept} edges" in first
    page.keyboard.press("End")
    assert seen.words("#run-0-epoch") == final
    page.get_by_role("button", name="Play").click()
    seen.until("document.querySelector('#run-0-epoch').textContent.startsWith('found')")
    assert seen.errors == []


def test_hover_shows_name_cost_and_probability(address: str, tab: MakeTab) -> None:
    seen = tab().open(address)
    page = seen.page
    canvas = page.locator("#run-0-canvas")
    canvas.scroll_into_view_if_needed()
    assert not page.locator("#tip").is_visible()
    shown = 0
    for i in range(canvas.locator(".edge").count()):
        x, y = canvas.locator(".edge").nth(i).evaluate(MIDDLE_OF_EDGE)
        page.mouse.move(x, y)
        under = page.evaluate("([x, y]) => ({...document.elementFromPoint(x, y)?.closest('.edge')?.dataset})", [x, y])
        if not under:
            continue
        shown += 1
        words = seen.words("#tip")
        assert under["name"] in words
        assert f"cost {under['cost']}" in words
        assert float(words.rpartition("probability ")[2]) == pytest.approx(float(under["probability"]), abs=0.0051)
    assert shown > 20
    page.mouse.move(5, 5)
    assert not page.locator("#tip").is_visible()


def test_the_keyboard_reaches_everything(address: str, tab: MakeTab) -> None:
    seen = tab().open(address)
    page = seen.page
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"run-0-play", "run-0-slider", "run-0-canvas"} <= set(reached)
    page.locator("#run-0-canvas").focus()
    page.keyboard.press("ArrowRight")
    first = seen.words("#tip")
    page.keyboard.press("ArrowRight")
    assert seen.words("#tip") != first
    page.keyboard.press("ArrowLeft")
    assert seen.words("#tip") == first
    assert page.locator(".edge.active").count() == 1
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


KINDS = ("fabric", "own", "regression", "sweep")
OVERFLOWING = """
[...document.querySelectorAll('h1, h2, h3, h4, p, li, dt, dd, th, td, summary, figcaption, pre')]
  .filter(e => e.getClientRects().length && !e.closest('.hidden, .stack thead'))
  .filter(e => { const box = e.getBoundingClientRect(); return box.left < -1 || box.right > innerWidth + 1; })
  .map(e => `${e.tagName} ${e.textContent.slice(0, 60)}`)
"""
"""Texts that reach beyond the edge of the window."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_shows_every_text(kind: str, tab: MakeTab, pages: dict[str, str]) -> None:
    seen = tab(viewport={"width": 375, "height": 812}).open(pages[kind])
    page = seen.page
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    boxes = page.evaluate(
        "[...document.querySelectorAll('.plot svg')].map(e => e.getBoundingClientRect()).map(b => [b.left, b.right])"
    )
    assert boxes
    assert all(left >= 0 and right <= 375 for left, right in boxes)
    assert page.evaluate(OVERFLOWING) == []
    wide = page.locator("#run-0-canvas").evaluate(
        "e => [e.scrollWidth, e.clientWidth, e.querySelector('svg').clientWidth]"
    )
    assert wide[0] >= wide[2], "a picture that is too wide scrolls in its own box"
    assert (seen.errors, seen.requests) == ([], [pages[kind]])


@pytest.mark.parametrize(("kind", "scheme"), [(kind, ("light", "dark")[i % 2]) for i, kind in enumerate(KINDS)])
def test_no_accessibility_violation(kind: str, scheme: str, tab: MakeTab, pages: dict[str, str]) -> None:
    seen = tab(color_scheme=scheme).open(pages[kind])
    seen.page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
    assert violations(seen.page) == []
    assert (seen.errors, seen.requests) == ([], [pages[kind]])


def test_a_regression_is_not_called_accuracy(tab: MakeTab, pages: dict[str, str]) -> None:
    words = tab().open(pages["regression"]).words("main")
    assert "and reaches r2 " in words
    assert "accuracy" not in words


@pytest.mark.parametrize("kind", ["fabric", "regression"])
def test_the_code_on_the_page_works(
    kind: str, tab: MakeTab, pages: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = tab().open(pages[kind]).page.locator("#run-0-usage").locator("xpath=..").locator("code")
    found = [(block.get_attribute("data-language"), block.inner_text()) for block in blocks.all()]
    assert [language for language, _ in found] == ["python", "shell", "shell"]
    tools = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for name, call in (("python", ""), ("budgetnet", "-m budgetnet")):
        (tmp_path / name).write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        (tmp_path / name).chmod(0o755)
    for language, code in found:
        program = ["python", "-c", code] if language == "python" else ["sh", "-e", "-c", code]
        done = subprocess.run(program, cwd=tmp_path, env={**os.environ, **tools}, capture_output=True, text=True)
        assert done.returncode == 0, (code, done.stdout, done.stderr)
        assert done.stdout.strip(), code


def test_dark_is_dark(address: str, tab: MakeTab) -> None:
    for scheme, bright in (("light", True), ("dark", False)):
        image = tab(color_scheme=scheme).open(address).picture("body")
        assert (sum(image.getpixel((2, 2))) > 380) == bright  # type: ignore[arg-type]
        corner = image.getpixel((image.width // 2, 300))
        assert corner is not None


def test_pictures_without_scripts(address: str, tab: MakeTab) -> None:
    seen = tab(java_script_enabled=False).open(address)
    images = seen.page.locator(".plot img")
    assert images.count() == seen.page.locator(".plot").count()
    for image in images.all():
        box = image.bounding_box()
        assert box is not None
        assert box["height"] > 100
    assert colours(seen.picture("#run-0-canvas")) > 50
    assert colours(seen.picture(".plot")) > 20
    assert not seen.page.locator("[data-slider]").is_visible()
    assert seen.requests == [address]


def test_several_runs_and_a_killed_one(comparison: str, tab: MakeTab) -> None:
    seen = tab().open(comparison)
    page = seen.page
    assert seen.words("h1") == "4 runs"
    assert page.locator("tbody tr").count() >= 3
    assert page.locator("#comparison-plane-0 svg path").count() > 3
    assert "The records end in phase" in seen.words("#run-3 .warning")
    page.get_by_role("link", name="killed").click()
    assert page.evaluate("location.hash") == "#run-3"
    for run in ("run-0", "run-1", "run-3"):
        slider = page.locator(f"#{run}-slider")
        slider.focus()
        page.keyboard.press("Home")
        assert seen.words(f"#{run}-epoch").startswith("epoch ")
    assert seen.errors == []
    assert len(seen.requests) == 1


def test_names_with_markup_are_shown_as_text(tab: MakeTab, tmp_path: Path) -> None:
    name = "<script>alert(1)<img src=x onerror=alert(2)>'\""
    run = make_run(tmp_path / name, labels=(name, "b"))
    config = (run / "config.json").read_text().replace("made-up", "</script><script>alert(3)</script>")
    (run / "config.json").write_text(config)
    seen = tab().open(write_report([run], tmp_path / "report.html").as_uri())
    assert seen.words("h1") == name
    assert "</script><script>alert(3)</script>" in seen.words("main")
    assert seen.page.locator("img").count() == 0
    assert seen.errors == []
    assert len(seen.requests) == 1


@pytest.mark.parametrize("theme", ["auto", "light", "dark"])
def test_a_drawing_as_a_page(theme: str, tab: MakeTab, tmp_path: Path) -> None:
    net = build("neural-fabric:width=8,scales=6,filters=2", (3, 32, 32))
    out = save(Picture(net, title="A fabric"), tmp_path / "drawing.html", theme)
    seen = tab(color_scheme="dark").open(out.as_uri())
    assert seen.page.locator(".edge").count() == len(net.graph.edges)
    image = seen.picture("svg")
    assert (sum(image.getpixel((3, 3))) < 300) == (theme != "light")  # type: ignore[arg-type]
    assert colours(image) > 50
    assert violations(seen.page) == []
    assert seen.errors == []
    assert seen.requests == [out.as_uri()]


def test_the_command_writes_the_page(real_run: Path, tab: MakeTab, tmp_path: Path) -> None:
    from click.testing import CliRunner

    out = tmp_path / "page.html"
    assert CliRunner().invoke(commands.report, [str(real_run), "-o", str(out)]).exit_code == 0
    assert tab().open(out.as_uri()).errors == []


@pytest.fixture(scope="module")
def segmented(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("segmented")
    assert main([*search_options(write_folders(folder)), "--out", str(folder / "run")]) == 0
    return (folder / "run" / "report.html").as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_segmentation_shows_image_truth_and_prediction(segmented: str, tab: MakeTab, width: int, scheme: str) -> None:
    seen = tab(viewport={"width": width, "height": 900}, color_scheme=scheme).open(segmented)
    page = seen.page
    pictures = page.locator(".examples img")
    assert pictures.count() == 18
    assert pictures.evaluate_all("all => all.every(one => one.complete && one.naturalWidth === 16)")
    assert page.locator(".classes li").all_inner_texts() == ["0", "1", "2", "ignored"]
    assert colours(seen.picture(".examples figure")) > 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(page) == []
    assert (seen.errors, seen.requests) == ([], [segmented])
