"""A mask of too few axes that fits the scores only where sizes coincide.

What it does
------------
Finds masks of shape (batch, time) or (batch, time, time) that meet scores (batch, heads, time, time) as they are.
Axes are lined up from the right, so that samples lie along queries or heads.

Why is this bad
---------------
With most sizes the line raises. Where the batch is as large as the sequence is long, or as there are heads, it runs:
query i of every sample is then masked as sample i should be. The same happens with a batch of one, where it is right
by chance, and so it may be right in every test and wrong at the end of an epoch.

The probe tries the mask with sizes that all differ. Where it is taken in no form, it makes two sizes equal on purpose
and looks which entry of the mask each score follows.

In source, the axes are counted: those of the scores from the views and transposes of query and key, those of the mask
from an argument called `key_padding_mask`, from ids whose shape is unpacked, or from `flatten(1)`.

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
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN207",
    name="mask-broadcast",
    summary="mask lies along the wrong axes of the scores",
    fix="give the mask an axis for each of the scores: mask[:, None, None, :] for (batch, keys)",
    explains=("ATN203", "ATN205", "ATN211", "ATN212", "ATN404"),
)


def lint(function: Function) -> Iterator[Finding]:
    for mask in function.flat_masks:
        yield GOTCHA.at(mask.location, mask.text, severity=Severity.WARNING, help=mask.help)


def probe(xray: XRay) -> Iterator[Finding]:
    for delivery in (*xray.handed.over, *xray.handed.by_chance):
        for arrival in delivery.arrivals:
            if arrival.of_other_samples and arrival.by_chance:
                yield GOTCHA.at(
                    arrival.op.location,
                    f"{delivery.name} lies along the wrong axes of the scores and fits only where sizes coincide",
                    severity=Severity.ERROR if xray.promised(delivery.name) else Severity.WARNING,
                    expected="the scores of a sample follow the mask of that sample",
                    found=arrival.example,
                )
