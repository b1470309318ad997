"""Errors that are the caller's to mend. The command line prints them in one line and exits with 2."""


class UsageError(ValueError):
    """What was given, what was expected, and what to do."""
