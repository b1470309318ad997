"""Parses source text, and keeps from the parsers what would crash them."""

from __future__ import annotations

import re
import warnings

from attn_guard.lint import building
from attn_guard.lint.nodes import Module

_BRACKET = re.compile(r"[()\[\]{}]")
_DEEPEST = 200  # CPython's own limit; at ten times that, libcst's parser overflows its stack and kills the process
_LAMBDAS = 500
_SIGNS = tuple(sign * 500 for sign in ("-", "+", "~", "not "))  # libcst's parser takes the square of their number


def parse(text: str) -> Module | None:
    """The tree of a source text, or None if it does not parse.

    Raises RecursionError for an expression of hundreds of terms.
    """
    if is_too_deep(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return building.module(text)
    except SyntaxError:
        return _parsed_as_newer(text)
    except (ValueError, MemoryError):
        return None


def _parsed_as_newer(text: str) -> Module | None:
    import libcst  # late, as it takes longer to import than most files take to read

    from attn_guard.lint import newer_syntax

    try:
        return newer_syntax.module(text)
    except (libcst.ParserSyntaxError, ValueError, RecursionError):
        return None


def is_too_deep(text: str) -> bool:
    """Whether brackets, lambdas or signs are nested so deep that the parser must not see the text."""
    if sum(map(text.count, "([{")) > _DEEPEST and _depth(text) > _DEEPEST:
        return True
    return text.count("lambda") > _LAMBDAS or any(signs in text for signs in _SIGNS)


def _depth(text: str) -> int:
    """How deep brackets are nested."""
    depth = deepest = 0
    for found in _BRACKET.finditer(text):
        depth = depth + 1 if found[0] in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest
