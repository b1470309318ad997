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

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.lint.spans import Part
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


def fix(blamed: Blamed) -> Fix | None:
    """Gives the mask the axes that it lacks, or the name of what it is. Unsafe: True may mean the opposite there."""
    other = re.match(r"pass it as (\w+)", blamed.finding.help)
    if other:
        name = re.search(r"but (\w+) is", blamed.finding.message)
        return unsafe(blamed.with_keyword(name[1], other[1])) if name else None
    found = re.search(r"has (\d) axes, the scores have (\d)", blamed.finding.message)
    mask = blamed.argument(3, "attn_mask") if blamed.called == "scaled_dot_product_attention" else _filled(blamed)
    if mask is None or found is None:
        return None
    own, needed = int(found[1]), int(found[2])
    new = ", ".join([":", *["None"] * (needed - own), *[":"] * (own - 1)])
    return unsafe(blamed.replacing(mask, f"{mask.bracketed}[{new}]"))


def _filled(blamed: Blamed) -> Part | None:
    return blamed.argument(1, "mask") if blamed.called in ("masked_fill", "masked_fill_") else None
