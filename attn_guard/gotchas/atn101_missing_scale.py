"""Scores reach the softmax without 1/√d_k.

What it does
------------
Finds query·keyᵀ products that reach the softmax with no factor on the way from the projections.

Why is this bad
---------------
The dot product of two vectors of `head_dim` independent components has a variance of `head_dim`. Without the factor
`head_dim ** -0.5` (Vaswani et al. 2017, section 3.2.1) the softmax saturates as heads get wider: a query sees one
key, its gradients vanish, and training is slow or stuck. Nothing raises, and the loss still falls.

It stays silent where something else bounds the scores: a norm on query and key, a learned temperature, a scale folded into
the query weights (T5), or a `scale` that the contract declares.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator

from attn_guard.anatomy import Site, Size
from attn_guard.findings import Finding
from attn_guard.gotchas import Gotcha

GOTCHA = Gotcha(
    code="ATN101",
    name="missing-scale",
    summary="scores reach the softmax without a scale",
    fix="multiply the scores by head_dim ** -0.5",
)


def check(site: Site) -> Iterator[Finding]:
    if site.scores is None or site.softmax is None or site.normalised:
        return
    if site.scale is not None and site.scale.is_one:
        head_dim = site.sizes.get(Size.HEAD_DIM)
        yield GOTCHA.at(
            site.scores,
            expected=f"{head_dim**-0.5:.4g} = {head_dim}**-0.5" if head_dim else "head_dim**-0.5",
            found="1" if head_dim else "no scale",
            related=(site.softmax, "softmax over the unscaled scores"),
        )
