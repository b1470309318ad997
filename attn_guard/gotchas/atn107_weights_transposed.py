"""The weights meet the value transposed.

What it does
------------
Finds products of weights and value that sum over the queries, where the softmax has run over the keys:
`weights.transpose(-2, -1) @ value`, or an einsum whose letters say so.

Why is this bad
---------------
Row t of the context should be what position t has gathered. Transposed, it is what all positions have *given* to t:
its weights sum to anything, and with a causal mask each position gathers from itself and its future, never from its
past. In self-attention both sizes are the sequence length, so nothing raises.

Scores that are key · queryᵀ, with the softmax down their columns, are read as what they are: then the transpose is due.

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

from attn_guard.anatomy import Axis
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding

GOTCHA = Gotcha(
    code="ATN107",
    name="weights-transposed",
    summary="weights meet the value transposed; they are summed over the queries",
    fix="weights @ value, with weights (..., queries, keys)",
    explains=("ATN203", "ATN205", "ATN212", "ATN214"),
)


def check(site: Site) -> Iterator[Finding]:
    if site.context is not None and (site.softmax_over, site.summed_over) == (Axis.KEYS, Axis.QUERIES):
        yield GOTCHA.at(
            site.context,
            expected="a sum over the keys",
            found="a sum over the queries",
            related=(site.softmax, "softmax over the keys") if site.softmax else None,
        )
