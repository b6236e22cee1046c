"""One self-contained HTML page from run folders. Strings from a run meet HTML only in autoescaping templates."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from budgetnet.naming.files import refuse_replacing, write_file
from budgetnet.naming.values import printable
from budgetnet.pictures.draw.output import vl_convert
from budgetnet.pictures.draw.theme import stylesheet
from budgetnet.pictures.report.charts import configs, key_style, static
from budgetnet.pictures.report.networks import Networks
from budgetnet.pictures.report.views import View, make_view
from budgetnet.records.folder import read_run

STATIC_WIDTH = {False: 480, True: 980}
POLL_SECONDS = 2.0
LONGEST_TEXT = 2**24
"""Characters of one text on the page; pictures are texts there, as data URIs."""


@dataclass(frozen=True)
class Content:
    """What changes while a run goes on: the inner HTML of the page, and the data of its charts and sliders."""

    title: str
    body: str
    data: Mapping[str, Any]


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    force: bool = False,
    space: str | None = None,
) -> Path:
    """Writes the report of one or several run folders, by default into the folder of the only one."""
    target = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if not force:
        refuse_replacing(target)
    return write_file(target, report(runs, Networks(space)).encode(), replace=force)


def report(runs: Sequence[Path], networks: Networks | None = None) -> str:
    """The page for run folders, with static pictures for readers without scripts."""
    return render(content(make_view([read_run(path) for path in runs], networks or Networks()), pictures=True))


def content(view: View, pictures: bool) -> Content:
    """The changing part of a page; `pictures` adds each chart as a static picture."""
    charts = {chart.id: chart.chart.spec for chart in view.charts}
    stills = {c.id: static(c.chart.spec, STATIC_WIDTH[c.chart.wide]) for c in view.charts} if pictures else {}
    body = _environment().get_template("body.html").render(view=view, stills=stills)
    return Content(view.title, body, {"charts": charts, "sliders": view.sliders})


def render(content: Content, live: bool = False) -> str:
    """A whole page. Only the two scripts written here may run, and nothing may be fetched (from elsewhere, if live)."""
    scripts = [_library(), _asset("report.js")]
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}; script-src {' '.join(map(_digest, scripts))}"
    )
    data = {**content.data, "configs": configs(), "poll": POLL_SECONDS if live else None}
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=content.title,
            body=Markup(content.body),  # rendered by an autoescaping template
            style=Markup(_asset("report.css") + stylesheet() + key_style()),  # our own file
            scripts=[Markup(script) for script in scripts],  # our own file, and the chart library
            data=Markup(inert_json(data)),  # cannot end the script element
            policy=policy,
        )
    )


def inert_json(value: Any) -> str:
    """JSON in which no HTML parser finds a tag."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _library() -> str:
    text: str = vl_convert().javascript_bundle()
    return text.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return (files("budgetnet.pictures.report") / "assets" / name).read_text(encoding="utf-8")


def _finalized(value: Any) -> Any:
    """What a template shows: text of others without control characters; `Markup`, which is ours, stays."""
    return printable(value, LONGEST_TEXT) if type(value) is str else value


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("budgetnet.pictures.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
