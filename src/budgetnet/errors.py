"""The one error that a user's input can cause: the command line prints it as a sentence and exits with 2."""


class UserError(ValueError):
    """What was wrong, with the value, and what to do about it, in one sentence."""
