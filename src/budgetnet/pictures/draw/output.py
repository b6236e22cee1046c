"""Pictures and pages as files: the format by the file's name, nothing overwritten unasked, nothing half-written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from budgetnet.errors import UserError
from budgetnet.naming.files import refuse_replacing, write_file
from budgetnet.pictures.draw.paint import svg
from budgetnet.pictures.draw.picture import Picture, describe
from budgetnet.pictures.draw.text import escaped

FORMATS = (".svg", ".png", ".html")
PIXELS = 2.0
"""PNG pixels for each pixel of the picture: sharp on today's screens."""


def save(picture: Picture, out: Path, theme: str = "auto", force: bool = False) -> Path:
    """Writes the picture as .svg, .png or .html."""
    if out.suffix.lower() not in FORMATS:
        raise UserError(f"{str(out)!r} does not end in {', '.join(FORMATS)}; the end says which format to write")
    if not force:
        refuse_replacing(out)
    return write_file(out, render(picture, out.suffix.lower(), theme), replace=force)


def render(picture: Picture, suffix: str, theme: str = "auto") -> bytes:
    """The bytes of a picture in a format. A PNG has no reader's system to follow: `auto` is light."""
    if suffix == ".png":
        image: bytes = vl_convert().svg_to_png(svg(picture, "light" if theme == "auto" else theme), scale=PIXELS)
        return image
    text = svg(picture, theme)
    return (page(picture, text, theme) if suffix == ".html" else text).encode()


def page(picture: Picture, text: str, theme: str) -> str:
    """A self-contained page around a picture; it may ask the network for nothing."""
    scheme = "light dark" if theme == "auto" else theme
    title = escaped(picture.title or describe(picture))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="{scheme}"><title>{title}</title>'
        "<style>body{margin:0}main{overflow:auto}svg{display:block;margin:auto}"
        "h1{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}</style></head>"
        f'<body><main tabindex="0"><h1>{title}</h1>{text}</main></body></html>'
    )


def vl_convert() -> Any:
    """The module that turns SVG into PNG and charts into SVG; it is an extra."""
    try:
        import vl_convert
    except ImportError:
        raise UserError(
            "this picture needs a package that is not installed; run: pip install 'budgetnet[report]'"
        ) from None
    return vl_convert
