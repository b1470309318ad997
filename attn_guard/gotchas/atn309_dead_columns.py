"""A head, or a part of a projection, that nothing reads.

What it does
------------
Finds columns of the query, key or value projection, and heads of the context, that are computed and have no influence
on anything: they are cut off, overwritten by another head, left out of a loop, or set to zero by a constant.

Why is this bad
---------------
The parameters behind them get no gradient, and the model is smaller than it says. The cause is mostly an index: a loop
over `range(heads - 1)`, `value[:, 0]` for the value of every head, a slice of `head_dim` where several heads are meant.
All shapes are as they should be.

The probe follows each column through the operations that move it and sees whether anything ever reads it. A column that
is read and multiplied by a gate of zero counts as read, and so does a head that an argument, a buffer or a parameter
sets to zero: it is pruned on purpose. What is left over because the width does not divide by the
heads is another mistake (ATN301).

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

from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN309",
    name="dead-columns",
    summary="a part of the attention is computed and never read",
    fix="give every head, and every column of the projection, its place in the result",
    severity=Severity.WARNING,
)


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        heads = anatomy.unread_heads
        if heads is not None:
            yield GOTCHA.at(
                heads.op.location,
                f"{heads.count} of {heads.width} heads have no influence on the output",
                expected=f"{heads.width} heads in the result",
                found=f"{heads.width - heads.count}",
            )
        for unread in anatomy.unread_columns:
            yield GOTCHA.at(
                unread.op.location,
                f"{unread.count} of the projection's {unread.width} columns are never read",
                expected=f"{unread.width} columns with influence",
                found=f"{unread.width - unread.count}",
            )
