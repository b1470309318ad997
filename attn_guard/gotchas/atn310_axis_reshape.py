"""A reshape where two axes should be swapped.

What it does
------------
Finds `reshape` and `view` calls around an attention whose result has the sizes of the input in another order: channels
and pixels, frames and pixels, time and features, batch and time.

Why is this bad
---------------
A reshape never moves a number. Of an image (batch, channels, height, width), `.reshape(batch, height * width,
channels)` does not make one row per pixel: the first row holds the first few pixels of the first channel, line by
line. The shape is as wanted, so nothing raises. What the attention takes for a position is then a piece of several, or
the positions that it compares are not those that were meant: frames of different pixels, samples of different
sequences. Networks learn in spite of it, worse than they could, and pretrained weights that were made this way can
never be used right again.

The linter compares the sizes as they are named, and reports a reshape after which an axis has other sizes in front
of it
than before; all sizes must be known. The probe labels the numbers with their coordinates and follows the labels.
Sizes that coincide by chance are no
evidence. Heads that are cut or merged across positions are mistakes of their own (ATN303, ATN304).

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
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN310",
    name="axis-reshape",
    summary="a reshape stands where axes should be swapped; positions are scrambled",
    fix="permute or transpose the axes first, then reshape",
    explains=("ATN102", "ATN203", "ATN205", "ATN212", "ATN214", "ATN215", "ATN303", "ATN304", "ATN404", "ATN405"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A reshape after which an axis has other sizes in front of it."""
    for fault in function.moving_reshapes:
        yield GOTCHA.at(fault.location, fault.text)


def probe(xray: XRay) -> Iterator[Finding]:
    for swap in xray.swapping_reshapes:
        before, after = (" x ".join(map(str, shape)) for shape in (swap.before, swap.after))
        yield GOTCHA.at(
            swap.op.location,
            f"{before} is read as {after}; the axes change their order, the numbers do not",
            expected="axes swapped by permute or transpose",
            found=f"a reshape of {before} to {after}",
        )
    misplaced = None if xray.swapping_reshapes else xray.misplaced
    if misplaced is not None:
        yield GOTCHA.at(
            misplaced.op.location,
            "a reshape merges what was cut right before it, with no axes swapped between; positions are scrambled",
            expected=f"what is made of position {misplaced.origin} at position {misplaced.origin}",
            found=f"it comes out at position {misplaced.place}",
        )
