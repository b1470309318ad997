"""Attention weights that are asked for and thrown away.

What it does
------------
Remarks on calls of `nn.MultiheadAttention` whose weights nobody reads, while `need_weights` is left at its default,
which is True: `self.attention(x, x, x)[0]`, or `y, _ = self.attention(x, x, x)`. It is a remark, and never fails a run.

Why is this bad
---------------
Asked for its weights, the layer computes scores, softmax and context one by one, and keeps (batch, heads, queries,
keys) numbers for the backward pass, which grow with the square of the length. With `need_weights=False` it calls
`F.scaled_dot_product_attention`, whose fused kernels never store them; the output is the same up to rounding.

Only source shows what becomes of the weights, so it is found by the linter alone. It is in preview: nobody has counted
yet on how many calls in real code it would remark.

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

from attn_guard.findings import Detector, Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function

GOTCHA = Gotcha(
    code="ATN604",
    name="need-weights-cost",
    summary="the weights are computed and thrown away, which turns the fused kernels off",
    fix="pass need_weights=False",
    severity=Severity.INFO,
    preview=(Detector.LINT,),
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.unread_maps:
        yield GOTCHA.at(fault.location)


def fix(blamed: Blamed) -> Fix | None:
    """Asks for no weights; the output stays what it is."""
    return blamed.with_option("need_weights", "False", 5)
