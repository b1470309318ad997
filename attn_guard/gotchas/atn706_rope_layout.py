"""Rotary positions whose scores are no function of the distance, or that turn the values, too.

What it does
------------
Finds rotary embeddings that mix up their layouts: cosines laid out for adjacent pairs with a rotation by halves, or the
other way round; a query that is turned and a key that is not. Also finds values that are turned and not turned back.

Why is this bad
---------------
Two numbers that are turned by one angle keep their length, and the product of two such pairs depends on the
difference of their angles: that is what makes the positions relative. Where each number of a pair has an angle of
its own,
the scores depend on absolute positions in a way that nobody meant, and a model does not carry over to longer texts.
Nothing
fails, and a loss that falls a little slower is the only sign. Both layouts are right by themselves, but weights
trained in one are useless in the other.

The probe puts one and the same query and key at every position and looks whether scores of one distance agree. It
asks only where the angles grow evenly with the position, so that rotary positions of images stay out of it.

It is in preview: models that turn only the query, or values, on purpose are conceivable.

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

from attn_guard.findings import Detector
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN706",
    name="rope-layout",
    summary="scores under rotary positions are no function of the distance",
    fix="lay out cosines and sines as the rotation does: torch.cat((angle, angle), -1) for halves",
    preview=(Detector.PROBE,),
)

FAR = 1e-2


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        rotary = anatomy.rotary
        turn = rotary.query or rotary.key
        if turn is None:
            continue
        spread = rotary.spread_on_diagonals
        if spread is not None and spread > FAR:
            both = rotary.query is not None and rotary.key is not None
            yield GOTCHA.at(
                turn.op.location,
                "" if both else f"only the {'query' if rotary.query else 'key'} is turned by its position",
                help="" if both else "turn query and key alike",
                expected="the same score for the same distance",
                found=f"scores of one distance that differ by {spread:.0%} of the largest",
            )
        elif rotary.value is not None and rotary.back is None:
            yield GOTCHA.at(
                rotary.value.op.location,
                "values are turned by their positions, too",
                help="turn query and key only",
                expected="values as they were projected",
                found="values that depend on their positions",
            )
