"""The same tokens, padded on the left, give other outputs.

What it does
------------
Finds modules that declare `@attn_guard.contract(padding_side="left")` and whose outputs at the real tokens change when
padding is put before them, although the mask hides it.

Why is this bad
---------------
Prompts of different lengths are padded on the left, so that generation goes on at the right end of each. If
positions are
counted from the left edge, the first token of a short prompt is taken for the tenth: the model sees a text that it was
never trained on, and each prompt's answer depends on the longest one in its batch. With rotary or relative positions
alone this changes nothing, since only distances count.

The probe compares the tokens with and without padding, in float64, too. Padding whose content matters is another fault
(ATN212). Without the declaration nothing is said: most models are padded on the right, where absolute positions
are right as they are.

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

from attn_guard.findings import Location
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN704",
    name="left-pad-positions",
    summary="outputs change when the same tokens are padded on the left",
    fix="count positions from the first real token: (mask.cumsum(-1) - 1).clamp(min=0)",
)


def probe(xray: XRay) -> Iterator[Finding]:
    found = xray.left_padded if xray.contract.padding_side == "left" else None
    if found is None:
        return
    first = found.runs.first_difference
    yield GOTCHA.at(
        first[1].location if first else Location("<probe>", 0),
        expected="the outputs of the tokens without padding",
        found=f"a difference of {found.difference:.2g} in numbers up to {found.spread:.2g}",
        notes=(f"two positions were put before the tokens, and hidden by {found.name}",),
    )
