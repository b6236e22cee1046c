"""Architecture pictures as SVG, PNG or a page: built-in spaces in their natural layout, any other graph by layers."""

from __future__ import annotations

from budgetnet.draw.layout import Layout
from budgetnet.draw.output import save
from budgetnet.draw.paint import size, svg
from budgetnet.draw.picture import Picture
from budgetnet.draw.places import LAYOUTS, layout
from budgetnet.draw.theme import THEMES, stylesheet

__all__ = ["LAYOUTS", "THEMES", "Layout", "Picture", "layout", "save", "size", "stylesheet", "svg"]
