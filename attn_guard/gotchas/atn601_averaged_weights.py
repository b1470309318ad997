"""A returned attention map that is the mean over all heads.

What it does
------------
Remarks on modules that return the mean over heads as their attention weights, as `nn.MultiheadAttention` does unless
it is told otherwise. It is a remark, and never fails a run; `nn.MultiheadAttention` itself is not reported.

The linter reads it where what `nn.MultiheadAttention` gives is returned. That half is in preview: nobody has counted
yet on how much real code it would remark.

Why is this bad
---------------
Heads look at different things, and a mean shows none of them: two heads that each look at one key sharply become one
that looks at both halfway. People plot the map, read it as "where the model looks", and find it blurred. Its shape
(batch, queries, keys) has no axis for the heads, so code that expects (batch, heads, queries, keys) may take the batch
for heads.

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

from attn_guard.anatomy import Size
from attn_guard.findings import Detector, Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN601",
    name="averaged-weights",
    summary="the returned weights are the mean over heads",
    fix="average_attn_weights=False gives one map per head: (batch, heads, queries, keys)",
    severity=Severity.INFO,
    preview=(Detector.LINT,),
)


def lint(function: Function) -> Iterator[Finding]:
    if not function.name.startswith("_"):
        for averaged in function.returned_means:
            yield GOTCHA.at(averaged)


def probe(xray: XRay) -> Iterator[Finding]:
    for returned in xray.showing.returned if not xray.is_built_in else ():
        if returned.is_average:
            heads = returned.anatomy.sizes[Size.HEADS]
            yield GOTCHA.at(
                returned.maker.location,
                expected=f"{heads} maps for each sample",
                found=f"1, the mean of {heads}",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Asks for a map of each head. Unsafe: who reads the mean gets one axis more."""
    return unsafe(blamed.with_option("average_attn_weights", "False", 7))
