"""Two masks joined with the wrong operator.

What it does
------------
Finds masks that say what to hide and are joined with AND, and masks that say what to keep and are joined with OR.

Why is this bad
---------------
A key has to be hidden if any of the masks says so. Of two masks in which True hides, `a & b` hides only what both do;
of two in which True keeps, `a | b` keeps what either does. With a causal and a padding mask, that leaves the past
padding visible as well as the real future, and only what is both padding and future is hidden. Two masks that never
agree, such as "in the future" and "too far back", hide nothing at all.

In source, the triangle and the padding have to be seen as such: a prefix that is kept beside a triangle is a design.
Two comparisons that can never hold at once, such as `i < j` and `i > j + window`, are found whatever they compare.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN221",
    name="mask-combine",
    summary="masks are joined with the wrong operator; one of them loses",
    fix="join masks in which True hides with |, masks in which True keeps with &",
    explains=("ATN203", "ATN205", "ATN209", "ATN211", "ATN212", "ATN214", "ATN218", "ATN219", "ATN503"),
)


def lint(function: Function) -> Iterator[Finding]:
    for join in function.split_joins:
        yield GOTCHA.at(join.location, related=join.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for op, name in xray.handed.wrongly_joined:
        yield GOTCHA.at(
            op.location,
            f"{name} hides only keys that are later as well" if name else "",
            expected="what any of the masks hides",
            found="what all of them hide",
        )


def fix(blamed: Blamed) -> Fix | None:
    """The other operator. Unsafe: it may be one of the masks that is upside down."""
    others = {"&": "|", "|": "&"}
    sign = others.get(blamed.sides[1]) if blamed.sides else None
    return unsafe(blamed.with_operator(sign)) if sign else None
