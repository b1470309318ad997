"""Says whether a file can be parsed at all."""

from __future__ import annotations

import ast
import warnings

from attn_guard.findings import Finding, Location, Severity
from attn_guard.lint.plan import SYNTAX_ERROR


def syntax_error(text: str, path: str) -> Finding | None:
    """The finding for a file that does not parse; None for one that does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        from attn_guard.lint.parsing import parse

        # this interpreter may be older than the syntax of the file, so the other parser has the last word
        if parse(text) is None:
            return unparsed(path, error.lineno or 1, error.offset or 0, error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return unparsed(path, 1, 0, str(error) or "nested too deeply")
    return None


def unparsed(path: str, line: int, column: int, reason: str, *, rest: str = "file") -> Finding:
    return Finding(
        code=SYNTAX_ERROR,
        name="syntax-error",
        severity=Severity.ERROR,
        message=f"the {rest} could not be parsed: {reason[:1].lower()}{reason[1:]}",
        location=Location(path, max(line, 1), column),
        help=f"correct the syntax; nothing else in this {rest} was checked",
    )
