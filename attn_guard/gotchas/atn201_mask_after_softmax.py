"""A mask applied to the weights, after the softmax, and none to the scores before it.

What it does
------------
Finds masks that are applied to attention weights (`masked_fill`, `where`, a product with a 0/1 mask) at sites where no mask
is applied to the scores.

Why is this bad
---------------
The softmax has already shared the weight of 1 among all keys, blocked ones included. Zeroing some of them afterwards
leaves rows that sum to less than one, and each weight that is left still depends on the blocked keys through the denominator: with a
causal mask, the future leaks.

Zeroing after the softmax as well as masking before it is fine. Masking and then dividing by the new row sum gives the right
values, but underflows, and its gradient still sees the blocked keys; that is a warning.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator

from attn_guard.anatomy import Site, StepKind
from attn_guard.findings import Finding
from attn_guard.gotchas import Gotcha

GOTCHA = Gotcha(
    code="ATN201",
    name="mask-after-softmax",
    summary="mask applied after the softmax; rows no longer sum to 1",
    fix="fill the scores with -inf where the mask blocks, before the softmax",
)


def check(site: Site) -> Iterator[Finding]:
    late = site.after_softmax(StepKind.MASK)
    if site.softmax is not None and late and not site.before_softmax(StepKind.MASK):
        yield GOTCHA.at(late[0], related=(site.softmax, "normalised here"), consequences=("ATN214", "ATN212"))
