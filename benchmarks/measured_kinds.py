"""Does every kind of measured, random and input-dependent budget end certified? One short search for each.

The budget is halfway between the smallest reachable cost and the full network's. Each search runs in a process of its
own and ends with a certificate; then its result is measured again, once, in a fresh process. Every outcome is in the
table and nothing is tried twice: with `--reuse`, kinds that have an outcome in the folder keep it, whatever it is.

The user's costs are those of `examples/`, loaded by name as from any module on PYTHONPATH.

    python -m benchmarks.measured_kinds [KIND…] [--runs runs/measured-kinds] [--reuse]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._common import ROOT, pin_threads, write_result
from benchmarks.latency_budgets import command
from budgetnet import data
from budgetnet.budgets.budget import parse_all
from budgetnet.budgets.feasibility import Profile, profile
from budgetnet.costs import units
from budgetnet.records.folder import RunFolder
from budgetnet.spaces import build

SMALL = ("resnet-fabric:width=2,channels=4", "embedded:size=14,limit=1280")
TIMED = ("resnet-fabric:width=2,channels=8", "embedded:limit=1280")
"""Times of larger networks can be told apart."""
EXAMPLES = ROOT / "examples"
PLACEMENT = {"cloud": ["g1b2", "g2b1", "g2b2"]}
HALFWAY = 0.5
SEED = 0


@dataclass(frozen=True)
class Kind:
    """Costs that are budgeted together, and the space and data that they are searched on."""

    costs: tuple[str, ...]
    space: str
    data: str


KINDS = {
    "latency_p95": Kind(("latency_p95",), *TIMED),
    "traffic": Kind(("traffic({placement})",), *SMALL),
    "peak_memory": Kind(("peak_memory",), *SMALL),
    "file_size": Kind(("file_size",), *SMALL),
    "input-dependent": Kind(("input_dependent:sparse_work",), *SMALL),
    "torch.compile": Kind(("latency(runtime=compile)",), *TIMED),
    "stochastic-mean": Kind(("random_link:link_delay",), *SMALL),
    "stochastic-p95": Kind(("random_link:link_delay_p95",), *SMALL),
    "latency-and-size": Kind(("latency", "size"), *TIMED),
}


def ranges(kind: Kind, costs: Sequence[str]) -> list[Profile]:
    """The smallest and the full cost of each, measured here."""
    dataset = data.load(kind.data)
    net = build(kind.space, dataset.input_shape, len(dataset.classes))
    example = data.prepare(dataset.validation.inputs)
    return profile(parse_all([(cost, 1.0) for cost in costs], net, example=example), SEED)


def outcome(name: str, runs: Path) -> dict[str, Any]:
    """One search, and one measurement of its result in a fresh process."""
    kind, run = KINDS[name], runs / name
    shutil.rmtree(run, ignore_errors=True)
    costs = [cost.format(placement=runs / "placement.json") for cost in kind.costs]
    begin = time.monotonic()
    found = ranges(kind, costs)
    maxima = [row.smallest + HALFWAY * (row.full - row.smallest) for row in found]
    pairs = list(zip(found, maxima, strict=True))
    budgets = [f"{row.budget.name}<={maximum:.6g}{row.budget.meter.unit}" for row, maximum in pairs]
    print(f"{name}: {'; '.join(_reach(row, maximum) for row, maximum in pairs)}", flush=True)
    settings = ["--space", kind.space, "--data", kind.data, "--epochs", "1", "--seed", str(SEED), "--threads", "1"]
    limits = [part for budget in budgets for part in ("--budget", budget)]
    done = command("search", *settings, *limits, "--quiet", "--out", str(run))
    row = {"kind": name, "space": kind.space, "data": kind.data, "exit_code": done.returncode}
    if not (run / "summary.json").exists():
        return {**row, "said": done.stderr.strip(), "budgets": [], "passed": False}
    again = command("certify", str(run), "--json")
    certified = json.loads((run / "certificate.json").read_text())
    empty: dict[str, Any] = {"budgets": [], "holds": False}
    measured = json.loads(again.stdout) if again.returncode in (0, 1) else empty
    return {
        **row,
        "edges": len(RunFolder(run).summary().architecture),
        "certify_exit_code": again.returncode,
        "said": again.stderr.strip(),
        "budgets": [
            _entry(*parts) for parts in zip(kind.costs, found, certified["budgets"], measured["budgets"], strict=False)
        ],
        "passed": bool(certified["holds"] and measured["holds"]),
        "seconds": round(time.monotonic() - begin, 1),
    }


def _reach(row: Profile, maximum: float) -> str:
    show = row.budget.show
    return f"{row.budget.name} from {show(row.smallest)} to {show(row.full)}, budget {show(maximum)}"


def _entry(cost: str, row: Profile, certified: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cost": cost.format(placement="placement.json"),
        "unit": certified["unit"],
        "smallest": row.smallest,
        "full": row.full,
        "promised": certified["maximum"],
        "measured": certified["measured"],
        "upper_bound": certified["upper_bound"],
        "holds": certified["holds"],
        "remeasured": again["measured"],
        "remeasured_bound": again["upper_bound"],
        "remeasured_holds": again["holds"],
        "how": {key: certified["how"][key] for key in ("method", "network", "samples") if key in certified["how"]},
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Kind, promised, measured, its bound, measured again, its bound, verdicts, as text."""
    head = ("kind", "promised", "measured", "at most", "again", "at most", "holds", "holds again")
    cells: list[tuple[str, ...]] = [head]
    for row in rows:
        for entry in row["budgets"] or [None]:
            cells.append(_cells(row["kind"], entry))
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def _cells(kind: str, entry: Mapping[str, Any] | None) -> tuple[str, ...]:
    if entry is None:
        return (kind, *["-"] * 5, "NO", "NO")
    keys = ("promised", "measured", "upper_bound", "remeasured", "remeasured_bound")
    verdicts = ("yes" if entry[key] else "NO" for key in ("holds", "remeasured_holds"))
    return (kind, *(units.show(entry[key], entry["unit"]) for key in keys), *verdicts)


def main() -> int:
    """Runs the kinds that are named, or all, one at a time; 1 if one of them did not end certified."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--runs", type=Path, default=Path("runs/measured-kinds"))
    parser.add_argument("--reuse", action="store_true", help="keep the outcomes that are in the folder")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.kinds) - KINDS.keys())
    if unknown:
        parser.error(f"there is no kind {unknown[0]!r}; use {', '.join(KINDS)}")
    pin_threads(1)
    sys.path.insert(0, str(EXAMPLES))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(EXAMPLES), os.environ.get("PYTHONPATH")]))
    arguments.runs.mkdir(parents=True, exist_ok=True)
    (arguments.runs / "placement.json").write_text(json.dumps(PLACEMENT))
    rows = []
    for name in arguments.kinds or KINDS:
        kept = arguments.runs / f"{name}.json"
        if not (arguments.reuse and kept.exists()):
            kept.write_text(json.dumps(outcome(name, arguments.runs)))
        rows.append(json.loads(kept.read_text()))
    payload = {
        "protocol": f"1 epoch, one thread, budgets {HALFWAY:.0%} of the way from the smallest to the full cost",
        "seeds": [SEED],
        "n": len(rows),
        "certified": sum(all(entry["holds"] for entry in row["budgets"] or [{"holds": False}]) for row in rows),
        "remeasured_hold": sum(row["passed"] for row in rows),
        "passed": all(row["passed"] for row in rows),
        "kinds": rows,
    }
    write_result("measured_kinds", payload)
    print(table(rows))
    return 0 if payload["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
