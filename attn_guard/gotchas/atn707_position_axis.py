"""Positions are added along another axis than time.

What it does
------------
Finds a table of positions that is added to the features so that it differs from sample to sample and not from
position to position, and one that is read at a single place, so that every position gets the same vector.

Why is this bad
---------------
The position of a token is then its number in the batch: the same sentence gets another encoding in another row, and the
order of its tokens is unknown. A table cut to `x.size(0)` is right for (time, batch, features) and broadcasts without a
word over (batch, time, features). The loss falls all the same, since a model without positions learns, too.

The linter reports a table that is cut to the length of the first axis, on the way to a layer of torch that is built
with `batch_first=True`, and one that is cut to the length of one axis and lies along another: `table[: x.size(1)]` of
shape (time, 1, features) meets the first axis of x. The probe looks at what is added to the features before the
first attention and comes from no input, and along which of
their axes it varies; which axis is time is told by the attention itself. A single place of a table is reported only
if the module cannot tell the order of its inputs in any other way, so that tables of token types stay out of it.

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
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN707",
    name="position-axis",
    summary="the table of positions does not vary along time",
    fix="index the table by time: table[:, : x.size(1)] for (batch, time, features)",
    explains=("ATN703",),
)


def lint(function: Function) -> Iterator[Finding]:
    """A table cut to the length of the first axis, on the way to a layer that takes the batch first; one that lies
    along another axis than it is cut for."""
    for fault in function.positions_on_batch:
        yield GOTCHA.at(fault.location, related=fault.related)
    for fault in function.misplaced_positions:
        yield GOTCHA.at(
            fault.location,
            "the table is cut to the length of one axis and added along another",
            help="give the table its positions on the axis of time: (1, time, features) for (batch, time, features)",
        )


def probe(xray: XRay) -> Iterator[Finding]:
    main = xray.streams.main
    for added in xray.added_tables:
        if main is None or main.time_axis in added.axes or not xray.attends_along_time:
            continue
        if added.axes:
            yield GOTCHA.at(
                added.op.location,
                "positions are added along the batch: each sample has one vector for all of its positions",
                expected="a vector for each position",
                found="a vector for each sample",
            )
        elif added.looked_up and xray.is_blind:
            yield GOTCHA.at(
                added.op.location,
                "one vector out of the table of positions is added to every position",
                expected="a vector for each position",
                found="the same vector everywhere",
            )
