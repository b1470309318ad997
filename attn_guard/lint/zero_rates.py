"""Branches that are taken only where the rate of the dropout is 0: ``if self.dropout == 0.0``, and flags that say
so."""

from __future__ import annotations

import re

from attn_guard.lint import nodes as cst
from attn_guard.lint.attributes import assigned
from attn_guard.lint.place import Place
from attn_guard.lint.regions import Region

_RATE = r"\b(?:\w*drop\w*|p)"
_ZERO = re.compile(rf"{_RATE} (?:==|<=) 0(?:\.0)?(?!\S)|\bnot (?:\w+\.)*{_RATE}(?!\S)")
_ABOVE = re.compile(rf"(?:\w+\.)*{_RATE}(?: (?:>|!=) 0(?:\.0)?)?")


def is_without_dropout(place: Place) -> bool:
    """Whether a place is reached only with a rate of 0."""
    return any(
        isinstance(node, cst.If | cst.IfExp) and _means_zero(node.test, place.region, side == 0)
        for node, side in place.record.branches
    )


def _means_zero(test: cst.BaseExpression, region: Region, holds: bool) -> bool:
    """Whether the rate must be 0 where a test holds, or does not hold."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) and _is_flag(test.expression):
        return _means_zero(test.expression, region, not holds)
    if not holds:
        return _ABOVE.fullmatch(cst.code(test)) is not None
    return any(_ZERO.search(text) and " or " not in text for text in (cst.code(test), *_spelled_out(test, region)))


def _is_flag(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self"


def _spelled_out(test: cst.BaseExpression, region: Region) -> list[str]:
    """What the constructor put into a flag of the module."""
    constructor = region.owner.methods.get("__init__") if region.owner else None
    if constructor is None or not isinstance(test, cst.Attribute) or not _is_flag(test):
        return []
    return [cst.code(value) for target, value in assigned(constructor) if target.attr.value == test.attr.value]
