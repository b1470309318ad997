"""A module that should know the order of its inputs does not.

What it does
------------
Finds modules that declare `@attn_guard.contract(positions=True)` and give every token the same output in whatever
order the tokens come.

Why is this bad
---------------
Attention by itself looks at a set. Without positions, "dog bites man" and "man bites dog" are one input, and two
molecules of the same atoms are one molecule. The loss still falls, since much can be told from the tokens alone, and
the usual cause is small: a table of positions that is made in the constructor and never added.

The probe changes the order of the inputs and compares in float64. Of a causal module it asks whether the last
position can tell the order of those before it, attention by attention: that a stack of causal layers could learn to
count by itself is no reason to leave out what was declared.

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

from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN703",
    name="position-blind",
    summary="the order of the inputs makes no difference, but positions are declared",
    fix="add positions before the first attention, or rotate query and key by them",
)


def probe(xray: XRay) -> Iterator[Finding]:
    if xray.contract.positions is True and xray.is_blind:
        yield GOTCHA.at(
            xray.without_positions,
            expected="outputs that depend on the order",
            found="the same outputs in another order of the inputs",
        )
