"""`.view` on a transposed tensor.

What it does
------------
Finds `.view` calls on a tensor that a `transpose` or `permute` has left in an order which this view cannot express.

Why is this bad
---------------
`transpose` moves no data, it only changes the strides. `.view` promises to move none either, so it can join two axes
only where they lie one after the other in memory. After `transpose(1, 2)`, heads and columns of a context of shape
(batch, time, heads, head_dim) do not, and `.view(batch, time, d_model)` raises a RuntimeError. With a single head or
a single position the same line works, and so it may do in a test and fail in use.

Views that only split the last axis are always legal and not reported, and neither is what
`F.scaled_dot_product_attention` returns, whose memory is often laid out so that transpose and view fit.

Before you make it run, make sure that the order of the axes is right: a reshape of a tensor that still has its heads
before time runs as well, and scrambles it (ATN304).

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
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN302",
    name="view-after-transpose",
    summary="view of a transposed tensor; raises when it runs",
    fix="use .reshape, or .contiguous() before .view",
)


def lint(function: Function) -> Iterator[Finding]:
    for view in function.illegal_views:
        yield GOTCHA.at(view.location, related=view.related)


def probe(xray: XRay) -> Iterator[Finding]:
    """A view that raised because its tensor had been transposed."""
    op, failure = xray.tape.failed_op, xray.tape.failure
    if op is None or op.name != "view" or "size and stride" not in str(failure):
        return
    viewed = xray.tape.values[op.inputs[0]]
    moved = xray.tape.nearest(op.inputs[0], {"transpose", "permute", "t", "expand"})
    yield GOTCHA.at(
        op.location,
        related=(moved.location, "the axes were swapped here") if moved is not None else None,
        expected="a view of contiguous memory",
        found=f"shape {tuple(viewed.shape)} with strides {viewed.stride()}",
    )


def fix(blamed: Blamed) -> Fix | None:
    return blamed.renamed("reshape") if blamed.called == "view" else None
