"""Calls libcst's parser, and keeps from it what would crash it."""

from __future__ import annotations

import re

import libcst as cst

_BRACKET = re.compile(r"[()\[\]{}]")
_DEEPEST = 200  # CPython's own limit; at ten times that, the native parser overflows its stack and kills the process
_LAMBDAS = 500
_SIGNS = tuple(sign * 500 for sign in ("-", "+", "~", "not "))  # the parser takes the square of their number


def parse(text: str) -> cst.Module | None:
    """The tree of a source text, or None if it does not parse."""
    try:
        return None if is_too_deep(text) else cst.parse_module(text)
    except (cst.ParserSyntaxError, RecursionError, ValueError):
        return None


def is_too_deep(text: str) -> bool:
    """Whether brackets, lambdas or signs are nested so deep that the parser must not see the text."""
    depth = 0
    for found in _BRACKET.finditer(text):
        depth = depth + 1 if found[0] in "([{" else max(0, depth - 1)
        if depth > _DEEPEST:
            return True
    return text.count("lambda") > _LAMBDAS or any(signs in text for signs in _SIGNS)
