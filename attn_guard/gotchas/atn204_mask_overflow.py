"""A mask that leaves the range of its dtype.

What it does
------------
Finds fills that the dtype of the scores cannot hold, such as -1e9 in float16, and finite masks that add up to -inf,
such as two planes of `torch.finfo(dtype).min`.

Why is this bad
---------------
float16 ends at -65504, and `masked_fill(mask, -1e9)` on half-precision scores raises. With automatic mixed precision
that happens on the first step on a GPU, in code that passed its tests on a CPU.

The lowest finite number is filled in so that a row without any key stays finite. Added twice, it is -inf after all, and
a row that both masks block becomes NaN. The probe says nothing where that cannot be, since one of the two is made from
positions alone and leaves each query a key, as the triangle of a causal mask does.

The probe runs a module in the dtype that it is in: to know about float16, check `module.half()`.

In source, a class is known to run in float16 where the file makes an object of it and calls `.half()`.

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

from attn_guard.anatomy import Stage, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

LOWEST_FLOAT16, LOWEST_FLOAT32 = -65504.0, -3.4e38

GOTCHA = Gotcha(
    code="ATN204",
    name="mask-overflow",
    summary="mask leaves the range of its dtype",
    fix="join the masks as booleans and fill once with torch.finfo(scores.dtype).min",
    explains=("ATN211",),
)


def lint(function: Function) -> Iterator[Finding]:
    for overflow in function.overflows:
        message = "two masks of the lowest finite number add up to -inf"
        yield GOTCHA.at(overflow.location, message, severity=Severity.WARNING, found="NaN in a row of nothing else")
    for site in function.own_sites if function.is_half else ():
        for mask in site.find(StepKind.MASK, Stage.SCORES):
            if mask.fill is not None and LOWEST_FLOAT32 < mask.fill < LOWEST_FLOAT16:
                yield GOTCHA.at(mask, f"mask fill {mask.fill:g} is out of the range of float16", found="an exception")


def probe(xray: XRay) -> Iterator[Finding]:
    for overflow in xray.handed.overflows:
        yield GOTCHA.at(
            overflow.location,
            overflow.what,
            severity=Severity.ERROR if overflow.severe else Severity.WARNING,
            expected=f"a number that {overflow.dtype} can hold",
            found="-inf, and NaN in a row of nothing else" if "add up" in overflow.what else "an exception",
        )


def fix(blamed: Blamed) -> Fix | None:
    """The lowest number of the dtype at hand, in the place of one that may not fit into it."""
    scores, fill = blamed.argument(0, "input"), blamed.argument(2, "value")
    is_fill = blamed.called in ("masked_fill", "masked_fill_") and fill is not None and fill.is_number
    if not is_fill or scores is None or not scores.is_name or not blamed.imports("torch"):
        return None
    return blamed.replacing(fill, f"torch.finfo({scores.text}.dtype).min")
