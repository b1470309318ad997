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

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.anatomy import Axis
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed

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


def fix(blamed: Blamed) -> Fix | None:
    """Leaves the transpose out, or swaps the letters of the weights. Unsafe: the softmax may be what lies wrong."""
    equation = blamed.argument(0) if blamed.called == "einsum" else None
    if equation is not None:
        return unsafe(blamed.replacing(equation, _swapped(equation.text)))
    weights, _ = blamed.product or (None, None)
    given = blamed.at(weights).untransposed if weights else None
    return unsafe(blamed.replacing(weights, given.bracketed)) if given else None


def _swapped(equation: str) -> str:
    """``bhkq,bhkd->bhqd`` with the last two letters of the weights swapped: those without the output's last."""
    found = re.search(r"(\w+)\s*,\s*(\w+)\s*->\s*\w*(\w)", equation)
    weights = [group for group in (1, 2) if found[3] not in found[group][-2:]] if found else []
    if found is None or len(weights) != 1:
        return equation
    start, end = found.span(weights[0])
    letters = equation[start:end]
    return equation[:start] + letters[:-2] + letters[-1] + letters[-2] + equation[end:]
