"""Text of others inside SVG and HTML: escaped, and without characters that XML forbids or that act on a reader."""

from __future__ import annotations

from markupsafe import Markup, escape

from budgetnet.naming.values import printable


def escaped(text: object) -> Markup:
    """Text as the content of an element or of an attribute in double quotes; its line breaks stay."""
    return escape("\n".join(printable(line) for line in str(text).split("\n")))
