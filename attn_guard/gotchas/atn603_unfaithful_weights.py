"""Returned attention weights that are not those that made the output.

What it does
------------
Compares the maps that a module returns with the weights that met the values: a map taken before the softmax, or before
the mask, so that hidden keys have weight in it; one whose queries and keys are swapped; one whose heads or samples
stand in another order.

Why is this bad
---------------
The output is right, so nothing suffers but what people conclude from the map. A map from before the mask shows
attention
to the future or to padding that never took place. A (batch · heads) stack viewed as (heads, batch) shows one sample's
weights beside the text of another.

The mean over heads is ATN601; dropout on the map is ATN602. Scores that are returned beside the weights are not
reported.

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

from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN603",
    name="unfaithful-weights",
    summary="the returned weights are not those that made the output",
    fix="return the tensor that is multiplied with the value, (batch, heads, queries, keys)",
    severity=Severity.WARNING,
    explains=("ATN602",),
    explained_by=("ATN2",),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for returned in xray.showing.returned:
        beside = [other for other in xray.showing.returned if other.anatomy is returned.anatomy]
        if not returned.misleads or any(not other.misleads for other in beside):
            continue
        hidden = returned.weight_of_blocked_keys
        yield GOTCHA.at(
            returned.maker.location,
            f"the returned map holds {returned.kind}",
            expected="0 for keys that the mask hides" if hidden else "the weights that met the values",
            found=f"up to {hidden:.2g}" if hidden else returned.kind,
        )
