"""Comparisons of what the walk knows nothing about: whether two of them can ever hold at once.

``q < k`` and ``q > k + window`` cannot. Each comparison is a sum of terms that is below 0; two exclude each other
where their sums cancel to something that is never negative.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from attn_guard.lint import nodes as cst

_EXTENT = re.compile(r"window|size|len|width|span|radius|look|block|chunk|context|limit|max", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A comparison by ``<``, ``<=``, ``>`` or ``>=``, or the opposite of it where it does not ``hold``."""

    node: cst.Comparison
    holds: bool = True

    @property
    def opposite(self) -> Order:
        return Order(self.node, not self.holds)

    def excludes(self, other: Order) -> bool:
        """Whether the two can never hold at once."""
        (first, is_strict), (second, is_other_strict) = self._below_zero(), other._below_zero()
        left = Counter(first)
        left.update(second)
        cancelled = [term for term in first if term in second and not left[term]]
        rest = {term: count for term, count in left.items() if count}
        never_negative = all(count > 0 and _is_extent(term) for term, count in rest.items())
        return len(cancelled) >= 2 and never_negative and (is_strict or is_other_strict)

    def _below_zero(self) -> tuple[dict[str, int], bool]:
        """Terms, with how often each is added, whose sum is below 0; or 0 as well, where it is not strict."""
        target = self.node.comparisons[0]
        is_less = isinstance(target.operator, cst.LessThan | cst.LessThanEqual) is self.holds
        is_strict = isinstance(target.operator, cst.LessThan | cst.GreaterThan) is self.holds
        terms: Counter[str] = Counter()
        _collect(self.node.left, 1 if is_less else -1, terms)
        _collect(target.comparator, -1 if is_less else 1, terms)
        return terms, is_strict


def _collect(node: cst.BaseExpression, sign: int, terms: Counter[str]) -> None:
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.Subtract):
        _collect(node.left, sign, terms)
        _collect(node.right, sign if isinstance(node.operator, cst.Add) else -sign, terms)
    else:
        terms[cst.code(node)] += sign


def _is_extent(term: str) -> bool:
    """Whether a term is a number or the name of something that has no sign, such as the size of a window."""
    return "-" not in term and (term.isdigit() or _EXTENT.search(term) is not None)
