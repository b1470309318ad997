"""The width does not divide by the number of heads, and nothing says so.

What it does
------------
Finds constructors that compute `head_dim = d_model // heads` without a check that nothing is left over.

Why is this bad
---------------
`//` rounds down. With `d_model=10` and `heads=3`, three heads of 3 columns hold 9 of the 10 columns. In the best case
the view into heads then raises, far from the cause: "shape '[2, 5, 3, 3]' is invalid for input of size 100", at the
first batch and not in the constructor. In the worst case the heads are cut out by slices, and the columns that are
left over are computed, trained on nothing and never read; the probe counts them.

The linter half is in preview: the check often stands elsewhere, in the configuration class or in a caller. The probe
sees a module that was built with such sizes.

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
from math import prod
from typing import TYPE_CHECKING

from attn_guard.anatomy import Site, Size
from attn_guard.findings import Detector
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.unread import Unread
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN301",
    name="indivisible-heads",
    summary="width does not divide by the number of heads",
    fix="raise in the constructor if d_model % heads is not 0",
    preview=(Detector.LINT,),
    explains=("ATN302", "ATN309"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A constructor that divides its width by its heads in a class that never checks the remainder."""
    for division in function.unchecked_heads:
        yield GOTCHA.at(division.location, "width is divided by the number of heads, and nothing checks the remainder")


def probe(xray: XRay) -> Iterator[Finding]:
    """A view into heads that fails because the width leaves a remainder, or heads that leave it out."""
    yield from _failed(xray)
    for anatomy in xray.sites:
        for unread in anatomy.unread_columns:
            width, heads = _remainder_of(unread, anatomy.site)
            if heads:
                yield GOTCHA.at(
                    unread.op.location,
                    f"width {width} does not divide by {heads} heads; {unread.count} of the projection's "
                    f"{unread.width} columns are dropped",
                    expected=f"{unread.width} columns in the heads",
                    found=f"{unread.width - unread.count}",
                )


def _remainder_of(unread: Unread, site: Site) -> tuple[int, int]:
    """(width, heads) of a projection that drops what the heads leave over; (0, 0) for others."""
    head_dim, parts = site.sizes[Size.HEAD_DIM], unread.parts
    width, heads = unread.width // parts, (unread.width - unread.count) // (parts * head_dim)
    is_rest = heads > 1 and width // heads == head_dim and unread.count == parts * (width % heads)
    return (width, heads) if is_rest else (0, 0)


def _failed(xray: XRay) -> Iterator[Finding]:
    invalid = re.search(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)", str(xray.tape.failure))
    if invalid is None:
        return
    width, heads = _split([int(size) for size in invalid[1].split(",")], int(invalid[2]))
    if heads:
        yield GOTCHA.at(
            xray.tape.failed_at,
            f"width {width} does not divide by {heads} heads; the split into heads fails",
            expected=f"a width that divides by {heads}",
            found=f"{width} = {width // heads} * {heads} + {width % heads}",
        )


def _split(wanted: list[int], numbers: int) -> tuple[int, int]:
    """(width, heads) of a shape (..., heads, head_dim) that does not hold so many numbers; (0, 0) where it is no
    such split."""
    *leading, heads, head_dim = wanted
    rows = prod(leading)
    if rows <= 0 or numbers % rows or heads <= 1:
        return 0, 0
    width = numbers // rows
    is_split = width % heads and head_dim in (-1, width // heads)
    return (width, heads) if is_split else (0, 0)
