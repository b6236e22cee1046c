"""Tables for notebooks, read back by a parser of HTML."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from budgetnet.naming.html import table, text


class Cells(HTMLParser):
    """The texts of a table's cells, row by row, and every element in it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """One element."""
        self.elements.add(tag)
        if tag in ("tr", "caption"):
            self.rows.append([])
        if tag in ("th", "td", "caption"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        """One text."""
        self.rows[-1][-1] += data


def read(html: str) -> Cells:
    cells = Cells()
    cells.feed(html)
    return cells


@given(st.lists(st.lists(st.text("<>&\"'/ab=#;", min_size=1), min_size=2, max_size=2), min_size=1))
def test_whatever_the_texts_are_they_stay_texts(rows: list[list[str]]) -> None:
    found = read(table(rows, ("name", rows[0][0]), rows[0][1]))
    assert found.rows == [[rows[0][1]], ["name", rows[0][0]], *rows]
    assert found.elements == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_characters_that_act_are_gone() -> None:
    assert text("a\x1b[31m\u202eb\nc") == "a�[31m�b c"
    assert len(text("a" * 5000)) == 2000
