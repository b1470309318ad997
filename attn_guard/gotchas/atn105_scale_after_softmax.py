"""The weights are scaled in place of the scores.

What it does
------------
Finds 1/√head_dim (or 1/√d_model) applied after the softmax, to the weights or to the context, at sites whose scores
are not scaled before it.

Why is this bad
---------------
The scale belongs on the scores because it decides how sharp the softmax is. After it, it decides nothing: the softmax
has run on scores that are too large by √head_dim and is saturated, and the rows sum to 1/√head_dim, so that the context
is too small by as much. A bracket in the wrong place is all it takes: `softmax(q @ k.mT) / d**0.5`.

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

from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed

GOTCHA = Gotcha(
    code="ATN105",
    name="scale-after-softmax",
    summary="the scale is applied after the softmax; the scores are not scaled",
    fix="scale the scores, before the softmax",
    explains=("ATN101",),
)


def check(site: Site) -> Iterator[Finding]:
    late = site.late_scale
    if late is not None and site.softmax is not None and not site.normalised:
        yield GOTCHA.at(
            late,
            expected=f"scores times {site.right_scale}",
            found=f"weights times {late.factor}",
            related=(site.softmax, "softmax over the unscaled scores"),
        )


def fix(blamed: Blamed) -> Fix | None:
    """Moves the factor from the weights to the scores. Unsafe: the scale may be a gate that is meant."""
    if blamed.sides is None or blamed.sides[1] not in ("*", "/"):
        return None
    weights, sign, factor = blamed.sides
    scores = blamed.at(weights).argument(0, "input")
    if blamed.at(weights).called != "softmax" or scores is None or not scores.is_product:
        return None
    scaled = weights.text.replace(scores.text, f"{scores.text} {sign} {factor.text}", 1)
    return unsafe(blamed.replacing(blamed.whole, scaled))
