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

from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN221",
    name="mask-combine",
    summary="masks are joined with the wrong operator; one of them loses",
    fix="join masks in which True hides with |, masks in which True keeps with &",
    explains=("ATN203", "ATN205", "ATN211", "ATN212", "ATN214"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for delivery in xray.handed.over:
        for anatomy in delivery.seen.sites:
            joined = delivery.joined_by_and(anatomy)
            if joined is not None:
                yield GOTCHA.at(
                    joined.op.location,
                    f"{delivery.name} hides only keys that are later as well",
                    expected="keys that are later, and keys that the mask hides",
                    found="keys that are both",
                )
