"""The pages: they build without a warning, their links lead somewhere, and commands have options that exist."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import budgetnet
from budgetnet.cli.commands import COMMANDS
from budgetnet.costs import COSTS
from tests.test_blocks import BLOCK, PAGES, ROOT, blocks

INLINE = re.compile(r"`(budgetnet [a-z][^`…]*)`")
OUTSIDE = sorted(ROOT.glob("*.md"))
"""Pages that are not on the site."""


def commands(page: Path) -> list[str]:
    """The lines that a page tells people to type, in blocks and in sentences."""
    typed = [line for block in blocks(page) if block.language == "console" for line in block.typed]
    return [line for line in typed if line.startswith("budgetnet ")] + INLINE.findall(_prose(page))


def _prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8")).replace("\n", " ")


class Links(HTMLParser):
    """Targets and places of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.loaded: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """One element."""
        given = dict(attributes)
        self.places |= {given["id"]} if given.get("id") else set()
        if tag == "a" and given.get("href"):
            self.targets.add(str(given["href"]))
        self.loaded |= {str(given[name]) for name in ("src", "href") if tag != "a" and given.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    own = {"PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(
        [*command, "-d", str(built)], capture_output=True, text=True, env={**os.environ, **own}, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "WARNING" not in done.stderr, "with --quiet a warning would not count"
    return built


def read(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: read(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 12
    for page, links in pages.items():
        for target in links.targets:
            address, _, place = unquote(target).partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            there = (page.parent / address).resolve() if address else page
            there = there / "index.html" if there.is_dir() else there
            assert there.is_file(), f"{page.relative_to(site)}: {target}"
            if place and there in pages:
                assert place in pages[there].places or place == "__top", f"{page.relative_to(site)}: {target}"


def test_the_site_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        outside = [address for address in read(page).loaded if "://" in address]
        assert outside == [], page.relative_to(site)


def test_every_option_is_on_the_page_of_commands(site: Path) -> None:
    text = (site / "commands" / "index.html").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f"budgetnet {command.name}" in text
        for parameter in command.params:
            names = [name for name in parameter.opts if name.startswith("--")]
            assert all(name in text for name in names), (command.name, names)


@pytest.mark.parametrize("name", [*budgetnet.__all__, *(f"costs.{name}" for name in COSTS if "." not in name)])
def test_every_public_name_is_in_the_reference(site: Path, name: str) -> None:
    found = functools.reduce(getattr, name.split("."), budgetnet)
    if not inspect.ismodule(found):
        assert f"{found.__module__}.{found.__qualname__}" in read(site / "api" / "index.html").places


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize(
    ("page", "line"), [(page.name, line) for page in PAGES for line in commands(page)], ids=lambda value: value[:60]
)
def test_a_command_of_a_page_is_understood(page: str, line: str) -> None:
    """It names a command and options that exist, with values that they take; it is not run."""
    words = shlex.split(line, comments=True)[1:]
    known = {command.name: command for command in COMMANDS}
    if words[0].startswith("-"):
        return
    command = known[words[0]]
    command.make_context(words[0], [word for word in words[1:] if not word.startswith(">")], resilient_parsing=True)
    taken = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0] for word in words[1:] if word.startswith("--")}
    assert given <= taken | {"--help"} or command.context_settings.get("ignore_unknown_options")


def test_every_benchmark_is_on_its_page() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    folder = ROOT / "benchmarks"
    for program in [*folder.glob("[a-z]*.py"), *(path.parent for path in folder.glob("*/__main__.py"))]:
        assert f"`{program.stem}`" in text, program.stem
