"""Scores are scaled twice, or by the inverse of the scale.

What it does
------------
Finds sites where two factors are each a scale of their own: query divided by √head_dim and the scores once more, or a
query scaled by hand before `F.scaled_dot_product_attention`, `flex_attention` or `flash_attn_func`, which scale by
themselves. Finds scores that are *divided* by `head_dim ** -0.5`, too: the scale is an inverse already, and what is
left is a factor of √head_dim.

Why is this bad
---------------
Scaled twice, the scores are smaller by √head_dim than they should be: the weights are nearly uniform, and each head
averages over all keys. Divided by the inverse, they are larger by `head_dim`: the softmax picks one key and its
gradients vanish. Nothing raises, and both survive a change of the kernel unnoticed, since the older one did not scale.

`head_dim ** -0.25` on the query and on the key is one scale. A second factor that is meant (μP divides by `head_dim`)
is declared with `@attn_guard.contract(scale=...)`.

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
    code="ATN103",
    name="double-scale",
    summary="scores are scaled twice",
    fix="scale once: F.scaled_dot_product_attention does so by itself",
)


def check(site: Site) -> Iterator[Finding]:
    if site.softmax is None or site.normalised or site.scale is None:
        return
    expected, found = str(site.right_scale), str(site.scale)
    if site.scale_twice:
        first, second = site.scale_twice
        yield GOTCHA.at(first, expected=expected, found=found, related=(second, "scaled once more"))
    elif site.inverse_scale:
        yield GOTCHA.at(
            site.inverse_scale,
            "scores are divided by a scale that is an inverse already",
            help="multiply by head_dim ** -0.5, or divide by its inverse, the root",
            expected=expected,
            found=found,
        )


def fix(blamed: Blamed) -> Fix | None:
    """Leaves out a factor that is written out, or tells the fused call not to scale. Unsafe: both may be meant."""
    second = blamed.related
    if second is None:
        return unsafe(blamed.with_operator("*") or (blamed.renamed("mul") if blamed.called == "div" else None))
    for place in (blamed, second):
        kept, _ = place.scaled or (None, None)
        if kept is not None and kept.text != place.target:
            return unsafe(place.replacing(place.whole, kept.text if kept.is_product else f"({kept.text})"))
    return unsafe(_unscaled(second) or _unscaled(blamed))


def _unscaled(call: Blamed) -> Fix | None:
    name = _SCALES.get(call.called, "softmax_scale" if call.called.startswith("flash_attn") else "")
    return call.with_argument(99, name, "1.0") if name else None


_SCALES = {"scaled_dot_product_attention": "scale", "flex_attention": "scale"}
