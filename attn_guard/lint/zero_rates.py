"""Branches that are taken only where the rate of the dropout is 0: ``if self.dropout == 0.0``, and flags that say
so."""

from __future__ import annotations

import re

from attn_guard.lint import nodes as cst
from attn_guard.lint.attributes import assigned
from attn_guard.lint.place import Place
from attn_guard.lint.regions import Region

_RATE = re.compile(r"(?:attn_|attention_|attn_probs_|attention_probs_)?(?:drop|dropout|pdrop)(?:_p|_prob|_rate)?|p")


def is_without_dropout(place: Place) -> bool:
    """Whether a place is reached only with a rate of 0."""
    return any(
        isinstance(node, cst.If | cst.IfExp) and _means_zero(node.test, place.region, side == 0)
        for node, side in place.record.branches
    )


def _means_zero(test: cst.BaseExpression, region: Region, holds: bool) -> bool:
    """Whether the rate must be 0 where a test holds, or does not hold."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _means_zero(test.expression, region, not holds)
    if isinstance(test, cst.BooleanOperation):
        every = isinstance(test.operator, cst.And) is holds  # both parts have the value that the whole has
        return every and any(_means_zero(part, region, holds) for part in (test.left, test.right))
    if isinstance(test, cst.Comparison):
        return _compares_with_zero(test, holds)
    return (not holds and _is_rate(test)) or any(_means_zero(value, region, holds) for value in _kept(test, region))


def _compares_with_zero(test: cst.Comparison, holds: bool) -> bool:
    """``rate == 0``, or the other side of ``rate > 0``."""
    only = test.comparisons[0] if len(test.comparisons) == 1 else None
    if only is None or not _is_rate(test.left) or cst.code(only.comparator) not in ("0", "0.0"):
        return False
    return isinstance(only.operator, cst.Equal | cst.LessThanEqual if holds else cst.NotEqual | cst.GreaterThan)


def _is_rate(node: cst.BaseExpression) -> bool:
    """``dropout``, ``self.attn_drop``, ``config.attention_dropout``; not ``drop_path``."""
    name = node.attr if isinstance(node, cst.Attribute) else node
    return isinstance(name, cst.Name) and _RATE.fullmatch(name.value) is not None


def _kept(test: cst.BaseExpression, region: Region) -> list[cst.BaseExpression]:
    """What the constructor put into a flag of the module, ``self.flash``."""
    constructor = region.owner.methods.get("__init__") if region.owner else None
    match test:
        case cst.Attribute(value=cst.Name("self")) if constructor is not None:
            values = [value for target, value in assigned(constructor) if target.attr.value == test.attr.value]
            return [value for value in values if not isinstance(value, cst.Attribute | cst.Name)]
    return []
