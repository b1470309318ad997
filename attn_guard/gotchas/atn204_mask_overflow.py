"""A mask that leaves the range of its dtype.

What it does
------------
Finds fills that the dtype of the scores cannot hold, such as -1e9 in float16, and finite masks that add up to -inf,
such as two planes of `torch.finfo(dtype).min`.

Why is this bad
---------------
float16 ends at -65504, and `masked_fill(mask, -1e9)` on half-precision scores raises. With automatic mixed precision
that happens on the first step on a GPU, in code that passed its tests on a CPU.

The lowest finite number is filled in so that a row without any key stays finite. Added twice, once for the future and
once for padding, it is -inf after all, and such a row becomes NaN.

The probe runs a module in the dtype that it is in: to know about float16, check `module.half()`.

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
    code="ATN204",
    name="mask-overflow",
    summary="mask leaves the range of its dtype",
    fix="join the masks as booleans and fill once with torch.finfo(scores.dtype).min",
    explains=("ATN211",),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for overflow in xray.handed.overflows:
        yield GOTCHA.at(
            overflow.location,
            overflow.what,
            severity=Severity.ERROR if overflow.severe else Severity.WARNING,
            expected=f"a number that {overflow.dtype} can hold",
            found="-inf, and NaN in a row of nothing else" if "add up" in overflow.what else "an exception",
        )
