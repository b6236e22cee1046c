"""Published rows beside ours, as values and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from budgetnet.pictures.pareto import front
from budgetnet.reproduce.published import PublishedRow, PublishedTable
from budgetnet.reproduce.settings import Setting
from budgetnet.runs.sweep.engine import FINISHED
from budgetnet.runs.sweep.table import Row


@dataclass(frozen=True)
class Ours:
    """A network that was trained here. The cost is in the unit of the table, accuracies in percent."""

    cost: float
    validation: float
    test: float | None
    run: str
    entropy: float | None = None
    """Of Γ at the end of a search, in bits an edge."""


@dataclass(frozen=True)
class Line:
    """A row of the paper, of ours, or of both where it is the same network (at the scale that was run)."""

    model: str
    published: PublishedRow | None = None
    recomputed: float | None = None
    """The cost of the published network, built and counted here."""
    ours: Ours | None = None


@dataclass(frozen=True)
class Comparison:
    """One table of the paper with ours in it."""

    where: str
    cost: str
    heading: str
    unit: float
    lines: tuple[Line, ...]


def compare(
    table: PublishedTable,
    paper: Setting,
    rows: Sequence[Row],
    models: Mapping[str, str],
    entropies: Mapping[str, float | None],
) -> Comparison:
    """Fixed networks get their own numbers beside the published ones; what was found follows what was published."""
    mine = _ours(table, rows, models, entropies)
    lines: list[Line] = []
    for model in dict.fromkeys([*(row.model for row in table.rows), *models.values()]):
        known = [row for row in table.rows if row.model == model]
        found = mine.get(model, [])
        if len(known) == 1 and len(found) <= 1 and paper.network(model):
            lines.append(_line(known[0], table, paper, found[0] if found else None))
        else:
            lines += [_line(row, table, paper, None) for row in known]
            lines += [Line(model, ours=ours) for ours in found]
    return Comparison(table.where, table.cost, table.heading, table.unit, tuple(_by_kind(lines)))


def _by_kind(lines: Sequence[Line]) -> Iterator[Line]:
    """ResNets that the paper does not have stand with those that it has."""
    kinds = dict.fromkeys(kind(line.model) for line in lines)
    for name in kinds:
        yield from (line for line in lines if kind(line.model) == name)


def kind(model: str) -> str:
    """`ResNet` of ResNet-20, `CNF` of CNF W=8, `LCCL`, `MSDNet`; budgeted models are kinds of their own."""
    return model if is_budgeted(model) else model.partition(" ")[0].partition("-")[0]


def is_budgeted(model: str) -> bool:
    """Whether the model is found by a search."""
    return model.startswith("B-")


def _line(row: PublishedRow, table: PublishedTable, paper: Setting, ours: Ours | None) -> Line:
    recomputed = paper.cost(row.model, table.cost) / table.unit if paper.network(row.model) else None
    return Line(row.model, row, recomputed, ours)


def _ours(
    table: PublishedTable, rows: Sequence[Row], models: Mapping[str, str], entropies: Mapping[str, float | None]
) -> dict[str, list[Ours]]:
    """By model: fixed networks, and searches under this cost that are on the validation front, expensive ones first.

    One front for each model, whatever the width of the fabric that it was found in.
    """
    found: dict[str, list[Ours]] = {}
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        if row["state"] == FINISHED and row["architecture"] is not None:
            found.setdefault(models[row["run"]], []).append(_entry(row, table))
    for model, row in searched(table.cost, rows, models):
        by_model.setdefault(model, []).append(row)
    for model, members in by_model.items():
        chosen = front([(row["value"], row["validation"]) for row in members])
        found[model] = [_entry(members[i], table, entropies.get(members[i]["run"])) for i in reversed(chosen)]
    return found


def searched(cost: str, rows: Sequence[Row], models: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """The finished searches under a cost, with their models."""
    for row in rows:
        if row["state"] == FINISHED and row["architecture"] is None and row["cost"] == cost:
            yield models[row["run"]], row


def _entry(row: Row, table: PublishedTable, entropy: float | None = None) -> Ours:
    test = None if row["test"] is None else 100 * row["test"]
    return Ours(row["costs"][table.cost] / table.unit, 100 * row["validation"], test, row["run"], entropy)


def selected(comparison: Comparison) -> list[str]:
    """The runs of the found networks that are in a table."""
    return [line.ours.run for line in comparison.lines if line.ours and is_budgeted(line.model)]


def as_json(comparison: Comparison) -> dict[str, object]:
    """For a file."""
    return asdict(comparison)


def as_markdown(comparison: Comparison, pictures: Mapping[str, Path]) -> str:
    """The table for people; a found network's name leads to its picture."""
    columns = (
        *("model", f"{comparison.heading}, published", "recomputed", "accuracy %, published", "original article"),
        *(f"{comparison.heading}, ours", "validation %, ours", "test %, ours", "entropy, bits", "run"),
    )
    lines = [f"## The paper's {comparison.where}", "", _cells(columns), _cells(["---", *["---:"] * 8, "---"])]
    lines += [_cells(_shown(line, comparison.unit, pictures)) for line in comparison.lines]
    rows = [line.published for line in comparison.lines if line.published and line.published.note]
    notes = [f"- {row.model}: {row.printed} is printed; it is {row.note}." for row in rows]
    return "\n".join([*lines, *(["", *notes] if notes else []), ""])


def _shown(line: Line, unit: float, pictures: Mapping[str, Path]) -> Iterator[str]:
    published, ours = line.published, line.ours
    yield line.model
    yield published.printed if published else ""
    yield amount(line.recomputed, unit)
    yield number(published.accuracy if published else None)
    yield number(published.original if published else None)
    yield amount(ours.cost if ours else None, unit)
    yield number(ours.validation if ours else None)
    yield number(ours.test if ours else None)
    yield "" if ours is None or ours.entropy is None else f"{ours.entropy:.3f}"
    picture = pictures.get(ours.run) if ours else None
    yield f"[{ours.run}]({picture.as_posix()})" if ours and picture else ours.run if ours else ""


def amount(cost: float | None, unit: float) -> str:
    """Steps are whole; of millions and billions there are three decimals."""
    return "" if cost is None else f"{cost:.0f}" if unit == 1.0 else f"{cost:,.3f}"


def number(score: float | None) -> str:
    """A score in percent."""
    return "" if score is None else f"{score:.2f}"


def _cells(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"
