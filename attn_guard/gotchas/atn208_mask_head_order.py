"""Per-head copies of a mask in the wrong order.

What it does
------------
Finds masks of shape (batch · heads, queries, keys) that were copied with `repeat` or `torch.cat` where the heads are
the inner axis, so that heads of one sample get the mask of another.

Why is this bad
---------------
`nn.MultiheadAttention` and most code that folds heads into the batch number the slices b · heads + h: all heads of the
first sample, then all of the second. `mask.repeat(heads, 1, 1)` gives all samples for the first head, then all
samples for the second. The shapes agree and nothing raises: each head of a sample hides the padding of some other
sample. It is right by chance for a batch of one, and where all samples have the same length.

The probe changes the mask of one sample and looks which slices follow.

In source, `mask.repeat(heads, 1, 1)` is followed to `nn.MultiheadAttention`. Code of your own may number its slices
either way.

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
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN208",
    name="mask-head-order",
    summary="heads of one sample get the mask of another",
    fix="copy the mask head by head: mask.repeat_interleave(heads, dim=0)",
    explains=("ATN203", "ATN205", "ATN211", "ATN212", "ATN404"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Copies with ``repeat(heads, 1, 1)`` that reach the built-in layer, whose order is known."""
    for mask in function.tiled_masks:
        yield GOTCHA.at(mask.location, related=mask.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for delivery in xray.handed.over:
        for arrival in delivery.arrivals:
            if arrival.of_other_samples and not arrival.by_chance:
                yield GOTCHA.at(
                    arrival.op.location,
                    f"heads of one sample get the {delivery.name} of another",
                    severity=Severity.ERROR if xray.promised(delivery.name) else Severity.WARNING,
                    expected="slice b · heads + h follows the mask of sample b",
                    found=arrival.example,
                )


def fix(blamed: Blamed) -> Fix | None:
    """``repeat(heads, 1, 1)`` where the mask is copied."""
    copies = blamed if blamed.called == "repeat" else blamed.related
    heads = copies.argument(1) if copies and copies.called == "repeat" and copies.count > 1 else None
    mask = copies.receiver if copies else None
    if copies is None or heads is None or mask is None:
        return None
    return copies.replacing(copies.whole, f"{mask.text}.repeat_interleave({heads.text}, dim=0)")
