"""Query, key or value made with the wrong projection.

What it does
------------
Finds attention in which one projection serves two parts while that of the other part lies idle: the key made with `w_q`
though there is a `w_k`, a value that is the bare input though there is a `w_v`, two parts cut from the same third of a
fused projection. Finds a part that is projected from another part (`v = w_v(k)`), too.

Why is this bad
---------------
All three have the same shape, so any of them fits in the place of another. With query and key from one projection the
scores are symmetric, and each position mostly attends to itself; with key and value from one, a position cannot be
found by one thing and read for another. The idle projection never gets a gradient, and keeps its first random numbers.

The linter goes by the names of the projections, and by those that no method of the class uses. It also reports a value
that is cut from a fused projection beside query and key and never read, where the bare input takes its place.

Sharing a projection on purpose (Reformer's query and key) leaves none idle, and is not reported.

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

from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.wiring import Mixup
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN403",
    name="qkv-mixup",
    summary="query, key or value is made with the wrong projection",
    fix="project query, key and value from their inputs, each with its own matrix",
    explains=("ATN309", "ATN402", "ATN706"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A part made with the projection of another, while its own is used nowhere in the class."""
    for mixup in function.mixups:
        how = f"is made like the {mixup.other}" if mixup.other else "is not projected"
        yield GOTCHA.at(mixup.location, f"the {mixup.wrong} {how}; {mixup.idle} is never used")


def probe(xray: XRay) -> Iterator[Finding]:
    for wiring in xray.wirings:
        for mixup in wiring.mixups():
            yield GOTCHA.at(
                mixup.location,
                _message(mixup),
                expected=f"a projection of its own for the {mixup.wrong}",
                found=f"{mixup.idle} has no influence" if mixup.idle else f"{mixup.other} projected once more",
            )


def _message(mixup: Mixup) -> str:
    if mixup.other is None:
        return f"the {mixup.wrong} is not projected; {mixup.idle} is never used"
    if not mixup.idle:
        return f"the {mixup.wrong} is projected from the {mixup.other}, not from the input"
    return f"the {mixup.wrong} is made like the {mixup.other}; {mixup.idle} is never used"


def fix(blamed: Blamed) -> Fix | None:
    """Calls the projection that lies idle. Unsafe: it may be left over, and the sharing meant."""
    idle = re.search(r"is made like the \w+; (\w+) is never used", blamed.finding.message)
    return unsafe(blamed.renamed(idle[1])) if idle and blamed.is_layer else None
