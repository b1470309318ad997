"""Heads cut out of the wrong axis: each head is a slice of positions.

What it does
------------
Finds projections of shape (batch, time, d_model) that are viewed straight as (batch, heads, time, head_dim), or as
(batch · heads, time, head_dim), with no transpose.

Why is this bad
---------------
A view cuts memory in the order in which it lies there: position by position, each with the columns of all heads. Read
as (heads, time, head_dim), the first head gets all columns of the first positions, the last head those of the last
positions, and what is called a position inside a head is a fragment of another one. The shapes are right, so nothing
raises. Heads bleed into positions: masks block the wrong keys, padding and future leak, and the order of the inputs
matters where it should not. With one head the two layouts are the same, so tests with `heads=1` cannot see the
mistake.

The probe sees it exactly: the score of query i and key j depends on positions other than i and j.

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

from attn_guard.anatomy import Site, StepKind
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed

GOTCHA = Gotcha(
    code="ATN303",
    name="head-split",
    summary="heads are cut across positions; each head mixes several positions",
    fix="view as (batch, time, heads, head_dim), then transpose(1, 2)",
    explains=("ATN102", "ATN203", "ATN205", "ATN212", "ATN214", "ATN219", "ATN304", "ATN704"),
)


def check(site: Site) -> Iterator[Finding]:
    scrambling = [step for step in site.find(StepKind.SPLIT) if step.scrambles]
    for step in {step.location: step for step in scrambling}.values():
        yield GOTCHA.at(step, notes=(step.scrambles,), consequences=("ATN212", "ATN214"))


def fix(blamed: Blamed) -> Fix | None:
    """(batch, heads, time, head_dim) becomes (batch, time, heads, head_dim), transposed. Unsafe: sizes go by place."""
    heads, time, rest = blamed.argument(2), blamed.argument(3), blamed.argument(5)
    if blamed.called not in ("view", "reshape") or not (heads and time and blamed.argument(4)) or rest:
        return None
    return unsafe(
        blamed.all(
            blamed.replacing(heads, time.text),
            blamed.replacing(time, heads.text),
            blamed.followed_by(".transpose(1, 2)"),
        )
    )
