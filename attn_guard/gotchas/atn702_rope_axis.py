"""Rotary angles that follow heads or samples in place of positions, or start again under a cache.

What it does
------------
Finds rotary position embeddings whose angle is the same at every position and differs from head to head, or from
sample to sample: queries of (batch, time, heads, head_dim) given to a function that takes (batch, heads, time,
head_dim), or the other way round. Also finds angles that start again at 0, or at any other position than the next, when
tokens are decoded with a cache.

Why is this bad
---------------
The model has no positions, and each head, or each sample of the batch, turns its features by an angle of its own.
Nothing
fails, since both axes are long enough for the table; training goes on, a little worse, and sometimes its loss blows
up. With a cache, restarted angles put every new token at the beginning of the text.

The linter reports positions that a rotary function counts along the axis of the heads; it knows what the functions of
xformers, torchtune, flash_attn and rotary_embedding_torch count along. The probe looks for products
of query or key with factors whose squares add up to one constant, cosine and sine or a
complex number, and compares the axes along which they vary with the axis along which the positions lie. Angles
under a cache are compared with those of the full pass at the same positions.

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
    code="ATN702",
    name="rope-axis",
    summary="rotary angles do not follow the positions",
    fix="rotate query and key in the layout that the rotary function expects: (…, time, head_dim)",
    explains=("ATN701", "ATN703", "ATN706"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Positions that are read off the axis of the heads."""
    for fault in function.angles_over_heads:
        message = "the positions of the rotary angles are counted along the heads"
        yield GOTCHA.at(fault.location, message, related=fault.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        wrong = anatomy.rotary.wrong_axis()
        if wrong is not None:
            turn, axis = wrong
            yield GOTCHA.at(
                turn.op.location,
                f"rotary angles run over the {axis}; every position has the same angle",
                expected="an angle for each position",
                found=f"angles that differ between {axis} only",
            )
    yield from _restarted(xray)


def _restarted(xray: XRay) -> Iterator[Finding]:
    """Angles under a cache that belong to other positions; the place is where the positions are made."""
    found = xray.decoded_at_other_angles
    if found is None or xray.decoded is None:
        return
    place, position = found
    yield GOTCHA.at(
        place,
        f"with a cache, position {xray.decoded.start} is turned by the angle of position {position}",
        severity=Severity.ERROR if xray.promised("cache") else Severity.WARNING,
        help="offset the positions of new tokens by the length of the cache",
        expected=f"the angle of position {xray.decoded.start}",
        found=f"the angle of position {position}",
        notes=(f"the tokens were handed over as {xray.decoded.schedule}",),
    )
