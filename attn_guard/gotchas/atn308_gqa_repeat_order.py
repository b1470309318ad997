"""Grouped query heads that meet the wrong heads of keys.

What it does
------------
Finds attention with fewer heads of keys than of queries in which the keys are spread in another order than the same
module states elsewhere: `repeat`, which gives k0 k1 k0 k1, where `repeat_interleave`, k0 k0 k1 k1, is due, or the
reverse.

Why is this bad
---------------
Both give the right shape. Pretrained weights, `enable_gqa=True` of `F.scaled_dot_product_attention` and the fused
kernels all have the query heads of one key head next to each other. With `repeat`, most query heads meet keys that they
were not trained with, and two paths through one module give different results.

A layer that is trained from scratch may number its heads either way and never know. So there must be evidence: the
queries are viewed as (key heads, group) and the keys repeated in turn, keys and values are spread in different orders,
or two paths of the module (a fused branch, the one that returns weights) disagree. The linter knows the first two.

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
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN308",
    name="gqa-repeat-order",
    summary="heads of keys are spread over the query heads in the wrong order",
    fix="spread the heads of keys and values with repeat_interleave(groups, dim=1), or pass enable_gqa=True",
    explains=("ATN209", "ATN503", "ATN701"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Keys repeated in one order beside queries that are viewed in the other."""
    for fault in function.contradicted_spreads:
        yield GOTCHA.at(fault.location, related=fault.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for contradiction in xray.grouping_contradictions:
        grouping = contradiction.grouping
        heads, key_heads = grouping.heads
        yield GOTCHA.at(
            grouping.spreading.location,
            f"{heads} query heads take {key_heads} heads of {grouping.part}s {grouping.order}; "
            f"{contradiction.by} they are grouped otherwise",
            expected=f"the query heads of one {grouping.part} head {contradiction.stated}",
            found=grouping.order,
        )


def fix(blamed: Blamed) -> Fix | None:
    """``repeat_interleave`` where heads are repeated as a whole. Unsafe: the queries may be what lies wrong."""
    copies = [blamed.argument(index) for index in range(1, blamed.count + 1)] if blamed.called == "repeat" else []
    spread = [(axis, part) for axis, part in enumerate(copies) if part and part.text != "1"]
    keys = blamed.receiver
    if keys is None or len(spread) != 1 or None in copies or len(copies) < 2:
        return None
    axis, groups = spread[0]
    return unsafe(blamed.replacing(blamed.whole, f"{keys.bracketed}.repeat_interleave({groups.text}, dim={axis})"))
