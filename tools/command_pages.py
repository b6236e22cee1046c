"""A hook of mkdocs: puts the help of every command in the place of a mark, so that the page cannot fall behind."""

from __future__ import annotations

from typing import Any

import click

from budgetnet.cli.commands import COMMANDS

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return markdown.replace(MARK, pages()) if MARK in markdown else markdown


def pages() -> str:
    """The help of every command under a heading of its own."""
    parts = []
    for command in COMMANDS:
        context = click.Context(command, info_name=f"budgetnet {command.name}", max_content_width=100)
        parts.append(f"## budgetnet {command.name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)
