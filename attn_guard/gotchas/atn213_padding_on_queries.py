"""The padding mask blocks query rows, not key columns.

What it does
------------
Finds padding masks of shape (batch, time) that were given an axis at the wrong end: (batch, 1, time, 1) in place of
(batch, 1, 1, time).

Why is this bad
---------------
Scores are (batch, heads, queries, keys), and what has to be hidden are keys. A mask that ends in an axis of size 1
blocks whole rows: a padded query sees nothing, which changes an output that nobody reads, and every real query still
sees all padded keys. With a finite fill such a row becomes a plain average and nothing shows; with -inf it becomes NaN.

The probe changes the entries of the mask argument and looks which scores follow. A mask that blocks rows as well as
columns is no mistake.

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
    code="ATN213",
    name="padding-on-queries",
    summary="padding mask blocks query rows, not key columns",
    fix="broadcast the mask over queries: mask[:, None, None, :]",
    explains=("ATN203", "ATN205", "ATN211", "ATN212"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for delivery in xray.handed.over:
        for arrival in delivery.on_rows:
            yield GOTCHA.at(
                arrival.op.location,
                f"{delivery.name} blocks query rows, not key columns",
                severity=Severity.ERROR if xray.promised(delivery.name) else Severity.WARNING,
                expected="the score of a query and a key follows the mask at the key",
                found="it follows the mask at the query",
            )
