"""Heads merged along the wrong axis: the row of a position holds other positions.

What it does
------------
Finds contexts of shape (batch, heads, time, head_dim) that are reshaped straight to (batch, time, d_model), with no
transpose back.

Why is this bad
---------------
The memory holds all positions of the first head, then all of the second. Read as (time, d_model), the first row is
made of the first few positions of the first head, and so on: what the output projection takes for the columns of one
position comes from several. The shape is right, so nothing raises. The scores were masked correctly and the future
leaks all the same, one line later. Easy tasks are learned in spite of it; a copy task does not notice.

With one head, or with one position, both orders are the same. A context that lies as (batch, time, heads, head_dim),
such as the result of `einsum("bhqk,bkhd->bqhd", ...)`, needs no transpose and is not reported.

The probe sees it exactly: row t of what enters the output projection depends on the contexts of other rows.

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
    code="ATN304",
    name="head-merge",
    summary="heads are merged across positions; each row mixes several positions",
    fix="transpose(1, 2) back to (batch, time, heads, head_dim) before the reshape",
    explains=("ATN212", "ATN214", "ATN219", "ATN704"),
)


def check(site: Site) -> Iterator[Finding]:
    scrambling = [step for step in site.find(StepKind.MERGE) if step.scrambles]
    for step in {step.location: step for step in scrambling}.values():
        yield GOTCHA.at(step, notes=(step.scrambles,), consequences=("ATN212", "ATN214"))


def fix(blamed: Blamed) -> Fix | None:
    """Moves the heads behind the positions first. Unsafe: the axes are taken to be (batch, heads, time, head_dim)."""
    moved = blamed.after_receiver(".transpose(1, 2)")
    if blamed.called == "view":
        moved = blamed.all(moved, blamed.renamed("reshape"))
    return unsafe(moved) if blamed.called in ("view", "reshape") else None
