"""Causal masks of one query and one key: drawn for a size that the function itself asserts to be 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.anatomy import StepKind
from attn_guard.lint import expressions
from attn_guard.lint import nodes as cst
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Scalar

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame

_DRAWS = re.compile(r"causal|tril|triu|subsequent", re.IGNORECASE)


def learn(frame: Frame, test: cst.BaseExpression) -> None:
    """``assert mask.shape[1] == 1`` says that a size is 1."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        learn(frame, test.left)
        learn(frame, test.right)
    elif isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        sides = [expressions.evaluate(frame, side) for side in (test.left, target.comparator)]
        if isinstance(target.operator, cst.Equal) and Scalar(1.0) in sides:
            frame.ones.extend(side for side in sides if isinstance(side, Scalar) and side.powers)


def check(frame: Frame, node: cst.Call) -> None:
    """Notes a call that draws a triangle of such a size."""
    called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    if not frame.ones or not isinstance(called, cst.Name) or not _DRAWS.search(called.value):
        return
    if any(expressions.evaluate(frame, size) in frame.ones for size in _arguments(node)):
        frame.walk.record.note(Trouble.SINGLE_CELL, Event(frame.place(node).draft(StepKind.MASK)))


def _arguments(node: cst.Call) -> Iterator[cst.BaseExpression]:
    """The arguments of a call, and of the calls that it is given or made on."""
    inner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
    for part in (*inner, *(arg.value for arg in node.args)):
        if isinstance(part, cst.Call) and not _is_size(part):
            yield from _arguments(part)
        elif part not in inner:
            yield part


def _is_size(node: cst.Call) -> bool:
    """``x.size(1)``."""
    return isinstance(node.func, cst.Attribute) and node.func.attr.value == "size"
