"""The page of the paper's tables with ours in them, from committed result files.

`budgetnet reproduce TABLE` writes a folder; `--keep` takes its table.json and its charts into benchmarks/results.
LCCL and MSDNet are of `benchmarks/rivals.py`.

python -m benchmarks._paper_tables --keep reproductions/cifar10-macs-reduced …    # into benchmarks/results
python -m benchmarks._paper_tables                                               # writes docs/paper-tables.md
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks._common import RESULTS, ROOT, commit
from benchmarks.rivals import summary
from budgetnet.reproduce import REPRODUCTIONS
from budgetnet.reproduce.published import PublishedRow
from budgetnet.reproduce.table import Comparison, Line, Ours, as_markdown

PAGE = ROOT / "docs" / "paper-tables.md"
WITHOUT_OURS = re.compile(r"\|  \|  \|  \|  \|  \|$", re.MULTILINE)
FULL_SIZE = "| – | – | – |  | needs a GPU |"
HEAD = """# The paper's tables, with ours in them

Every row that is published, its cost recomputed where the network is known, and our rows of a **reduced setting**
([the paper's tables and figures](reproduction.md) describes it, and says what follows): compare ours with ours
only. Published rows without ours are of networks of the paper's size: they need a GPU (`--scale full`), and have not
been run. Fixed networks are one run each. Of the searches, those on the front of cost and validation accuracy are
shown; one that a cheaper network dominates is not. LCCL and MSDNet are means over seeds. Entropy is that of Γ at
the end, in bits an edge. This page is made by `python -m benchmarks._paper_tables` from the files
`reproduce_*.json` and `rivals*.json` of `benchmarks/results`.
"""


def keep(folder: Path, made_by: str) -> None:
    """Takes the table and charts of a reproduction that a commit made."""
    value = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    name = f"reproduce_{value['name']}"
    command = f"budgetnet reproduce {value['name']} --data-root DATA"
    about = {"benchmark": "reproduce", "command": command, "commit": made_by}
    text = json.dumps({**about, "seeds": [0], "n": 1, **value}, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    for chart in folder.glob("*.svg"):
        shutil.copyfile(chart, RESULTS / f"{name}_{chart.stem}.svg")


def comparison(value: Mapping[str, Any]) -> Comparison:
    """A table of a result file."""
    lines = []
    for line in value["lines"]:
        published = PublishedRow(**line["published"]) if line["published"] else None
        ours = Ours(**{**line["ours"], "run": _short(line["ours"]["run"])}) if line["ours"] else None
        lines.append(Line(line["model"], published, line["recomputed"], ours))
    return Comparison(value["where"], value["cost"], value["heading"], value["unit"], tuple(lines))


def _short(run: str) -> str:
    """What tells a run from the others of its model: its λ and its seed."""
    return ", ".join(f"{name} = {value}" for name, value in re.findall(r"_(lambda|seed)-([\d.]+)", run)).replace(
        "lambda", "λ"
    )


def with_rivals(table: Comparison, data: str) -> Comparison:
    """The table with our LCCL and MSDNet behind the published ones, where it is about multiply-adds."""
    path = RESULTS / ("rivals.json" if data == "cifar10" else f"rivals_{data}.json")
    if not table.cost.startswith("macs") or not path.exists():
        return table
    lines = list(table.lines)
    for model, found in summary(json.loads(path.read_text(encoding="utf-8"))["rows"]).items():
        kind = model.partition(" ")[0].partition(",")[0]
        place = max((i for i, line in enumerate(lines) if line.model.startswith(kind)), default=None)
        cost, validation, test = (found[key]["mean"] for key in ("macs", "validation", "test"))
        runs = found["test"]["n"]
        ours = Ours(cost / table.unit, validation, test, f"mean of {runs}" if runs > 1 else "one run")
        if place is not None:
            lines.insert(place + 1, Line(model, ours=ours))
    return replace(table, lines=tuple(lines))


def sections() -> Iterator[str]:
    """Every table that has been run."""
    for name, entry in REPRODUCTIONS.items():
        path = RESULTS / f"reproduce_{name}.json"
        if not entry.tables or not path.exists():
            continue
        value = json.loads(path.read_text(encoding="utf-8"))
        for one in value["tables"]:
            yield WITHOUT_OURS.sub(FULL_SIZE, as_markdown(with_rivals(comparison(one), entry.data), {}))


def page() -> str:
    """The page."""
    return "\n".join([HEAD, *sections()])


def main() -> None:
    """Writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--commit", default=commit(), help="that made them; this one if not given")
    given = parser.parse_args()
    for folder in given.keep:
        keep(folder, given.commit)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
