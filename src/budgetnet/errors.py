"""What may end a run early: a fault of the input, told in one sentence with exit code 2, or a wish to stop."""


class UserError(ValueError):
    """What was wrong, with the value, and what to do about it, in one sentence."""


class Interrupted(Exception):  # noqa: N818
    """The user asked to stop; the state was saved."""


class Diverged(UserError):  # noqa: N818
    """Weights or loss are beyond saving: the end of a run, but in a race only of a racer, unless all of them go."""
