"""Tables for notebooks: every text is escaped, and cleaned of what moves a cursor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from budgetnet.naming.values import printable

LONG = "max-height:32em;overflow:auto;display:inline-block"
"""A table of many rows scrolls, so that it does not fill a notebook."""

LONGEST = 2000
"""Characters of a cell."""


def table(rows: Iterable[Sequence[object]], head: Sequence[str] = (), caption: str = "") -> str:
    """Rows as an HTML table; the first cell of each row is its head."""
    lines = [f"<caption>{text(caption)}</caption>"] if caption else []
    if head:
        lines.append(f"<thead><tr>{''.join(f'<th>{text(cell)}</th>' for cell in head)}</tr></thead>")
    lines.append(f"<tbody>{''.join(_row(row) for row in rows)}</tbody>")
    return f'<div style="{LONG}"><table>{"".join(lines)}</table></div>'


def text(value: object) -> str:
    """Any text for a page: characters that are markup or invisible become harmless."""
    return escape(printable(value, LONGEST))


def _row(row: Sequence[object]) -> str:
    first, *others = map(text, row)
    return f'<tr><th style="text-align:left">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>'
