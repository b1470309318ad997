"""Reads the class decorators of attn-guard, ``@contract(...)`` and ``@allow(...)``, without running them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from attn_guard.lint.regions import Class


def decorator_arguments(owner: Class, name: str) -> Mapping[str, Any]:
    """Keyword arguments of the class decorator ``@name(...)``; None for the value of one that is no literal."""
    return dict(pair for call in decorator_calls(owner, name) for pair in _arguments(call))


def decorator_calls(owner: Class, name: str) -> Iterator[ast.Call]:
    """The class decorators ``@name(...)`` and ``@module.name(...)``."""
    if f"{name}(" not in owner.head:
        return
    head = "\n".join(line.strip() for line in owner.head.splitlines())
    try:
        tree = ast.parse(f"{head} pass").body[0]
    except SyntaxError:
        return
    for decorator in tree.decorator_list if isinstance(tree, ast.ClassDef) else ():
        if isinstance(decorator, ast.Call):
            called = decorator.func.attr if isinstance(decorator.func, ast.Attribute) else decorator.func
            if called == name or (isinstance(called, ast.Name) and called.id == name):
                yield decorator


def _arguments(call: ast.Call) -> Iterator[tuple[str, Any]]:
    for keyword in call.keywords:
        if keyword.arg is not None:
            try:
                yield keyword.arg, ast.literal_eval(keyword.value)
            except ValueError:
                yield keyword.arg, None
