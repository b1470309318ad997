"""Two paths through a module, which should agree, give different results.

What it does
------------
Runs a module on every path that its switches open, with the same weights, inputs and seed, and compares what comes out:
`need_weights` and its like on and off, attributes that choose an implementation (`flash`, `use_sdpa`, `fused_attn`,
`attn_impl`), checkpointing, the attention implementation of a transformers model, training mode without dropout, and a
mask that blocks nothing in place of none.

Why is this bad
---------------
What is tested is one of the paths, and what is used another. The commonest difference is a factor: `self.scale` is
used in the branch that is written out, and the fused call falls back on its default. Weights that were trained on one
path are then run on the other, a little wrong everywhere.

Differences that may be rounding are computed again in float64 and count only if they are there as well. Runs in which
chance has a part, or which update statistics, are left out. A difference between training and evaluation is a warning,
since some layers differ on purpose. Lost masks are reported as ATN209.

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
    code="ATN503",
    name="path-divergence",
    summary="two paths through the module give different results",
    fix="give every path the same scale, mask and order of operations",
    explained_by=("ATN1", "ATN2", "ATN3", "ATN4", "ATN501", "ATN502", "ATN7"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for divergence in xray.divergences:
        if divergence.dropped is None:
            yield GOTCHA.at(
                divergence.place,
                f"the result with {divergence.other.text} is another",
                severity=Severity.WARNING if divergence.training else Severity.ERROR,
                expected="the same within rounding",
                found=f"a difference of {divergence.difference:.2g} of the largest output",
            )
