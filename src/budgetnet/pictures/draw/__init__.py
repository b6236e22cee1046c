"""Architecture pictures as SVG, PNG or a page: built-in spaces in their natural layout, any other graph by layers."""

from __future__ import annotations

from budgetnet.pictures.draw.layout import Layout
from budgetnet.pictures.draw.legend import html_key
from budgetnet.pictures.draw.output import save
from budgetnet.pictures.draw.paint import size, svg
from budgetnet.pictures.draw.picture import Picture
from budgetnet.pictures.draw.places import LAYOUTS, layout
from budgetnet.pictures.draw.theme import THEMES, stylesheet

__all__ = ["LAYOUTS", "THEMES", "Layout", "Picture", "html_key", "layout", "save", "size", "stylesheet", "svg"]
