"""What other people's errors say, short enough to be part of a sentence."""

from __future__ import annotations

LONGEST = 160


def reason(error: Exception) -> str:
    """The line of an error that says most, without full stops; its kind, if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    said = said.replace(". ", ", ").rstrip(".")
    return said if len(said) <= LONGEST else f"{said[: LONGEST - 1]}…"
