"""What may end a run early: a fault of the input, told in one sentence with exit code 2, or a wish to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 160
"""Characters of somebody else's error that are part of a sentence."""


class UserError(ValueError):
    """What was wrong, with the value, and what to do about it, in one sentence."""


class Interrupted(Exception):  # noqa: N818
    """The user asked to stop; the state was saved."""


class Diverged(UserError):  # noqa: N818
    """Weights or loss are beyond saving: the end of a run, but in a race only of a racer, unless all of them go."""


def reason(error: BaseException) -> str:
    """The line of somebody else's error that says most, without full stops; its kind, if it says nothing."""
    try:
        said = str(error)
    except Exception:  # an error of a user's class may raise another one when it is asked what it says
        said = ""
    lines = [line.strip() for line in said[: 100 * LONGEST].splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    first = first.replace(". ", ", ").rstrip(".")
    return first if len(first) <= LONGEST else f"{first[: LONGEST - 1]}…"


@contextmanager
def user_code(who: str, remedy: str) -> Iterator[None]:
    """Turns whatever a user's code raises, and a call of exit, into one sentence that names the code."""
    try:
        yield
    except (UserError, Interrupted):
        raise
    except SystemExit as error:
        raise UserError(f"{who} called exit{remedy}") from error
    except Exception as error:  # a user's function may raise anything
        raise UserError(f"{who} raised {type(error).__name__}: {reason(error)}{remedy}") from error
