"""Heads attend to heads: no position ever sees another.

What it does
------------
Finds attention whose queries and keys all come from one position: the heads stand where the positions should.

Why is this bad
---------------
`F.scaled_dot_product_attention` runs over the last axis but one. It wants (batch, heads, time, head_dim), while
`.view(batch, time, heads, head_dim)` puts time before the heads, as flash-attn and xFormers like it (there, the
transposed tensors are the wrong ones). Given the other layout, the weights are (heads, heads) for each position, the
value of a position is a mixture of its own heads, and no token learns anything about any other. The shapes of input and
output are right, so nothing raises; with a causal mask, head 2 may not see head 3. What is left is a network that works
on each position alone. It learns what can be told from one token, which is why the loss falls at first.

The linter follows the axes from the view into heads to the product, and needs to know all four of them. The probe
looks where the rows of each slice come from: one position each, and more than one row.

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
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN306",
    name="attention-over-heads",
    summary="heads attend to heads; no position sees another",
    fix="transpose(1, 2) to (batch, heads, time, head_dim) before the attention, and back after it",
    explains=("ATN102", "ATN203", "ATN205", "ATN212", "ATN214", "ATN215", "ATN303", "ATN304", "ATN404"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Scores of heads with heads, of queries and keys that still have time before the heads."""
    for fault in function.head_attention:
        yield GOTCHA.at(fault.location, help=fault.help)


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        site = anatomy.site
        if anatomy.influence.over_heads and site.scores is not None:
            yield GOTCHA.at(
                site.scores,
                expected="keys of several positions for each query",
                found=f"{site.sizes[Size.KEYS]} keys, all of the query's own position",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Swaps heads and time on the way in and out. Unsafe: the axes are taken to be (batch, time, heads, head_dim)."""
    operands = [blamed.argument(index, name) for index, name in enumerate(("query", "key", "value"))]
    if blamed.called not in _CALLS or not all(part and part.is_name for part in operands):
        return None
    swapped = [blamed.replacing(part, f"{part.text}.transpose(1, 2)") for part in operands if part]
    return unsafe(blamed.all(*swapped, blamed.followed_by(".transpose(1, 2)")))


_CALLS = ("scaled_dot_product_attention", "flex_attention", "flash_attn_func")
