"""Scores reach the softmax without 1/√head_dim.

What it does
------------
Finds query·keyᵀ products that reach the softmax with no factor anywhere on the way from the projections: neither on
the query or key, nor inside the product, nor on the scores.

Why is this bad
---------------
The dot product of two vectors of `head_dim` independent components of variance 1 has a variance of `head_dim`.
Without the factor `head_dim ** -0.5` (Vaswani et al. 2017, section 3.2.1) the scores grow with the head, the softmax
saturates, nearly all weight falls on one key, and the gradients through the softmax vanish. Nothing raises, and the
loss still falls, only slower or to a worse place.

It stays silent where something else bounds the scores: a norm on query and key, a learned temperature, a scale folded
into the query weights at initialisation (T5), or a `scale` that the contract declares. A `scale=1.0` that stands in the
source is a remark: who writes it knows that there is a scale.

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

from attn_guard.anatomy import StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed

GOTCHA = Gotcha(
    code="ATN101",
    name="missing-scale",
    summary="scores reach the softmax without a scale",
    fix="multiply the scores by head_dim ** -0.5",
)


def check(site: Site) -> Iterator[Finding]:
    if site.scores is None or site.softmax is None or site.normalised:
        return
    if site.scale is not None and site.scale.is_one and site.late_scale is None:
        is_written = any(step.factor and step.factor.is_one for step in site.before_softmax(StepKind.SCALE))
        yield GOTCHA.at(
            site.scores,
            severity=Severity.INFO if is_written else None,
            expected=str(site.right_scale),
            found="1" if site.sizes or is_written else "no scale",
            related=(site.softmax, "softmax over the unscaled scores"),
        )


def fix(blamed: Blamed) -> Fix | None:
    """Unsafe: the missing factor may have been folded into the weights of the query."""
    return unsafe(blamed.times(f"{blamed.width} ** -0.5" if blamed.width else ""))
