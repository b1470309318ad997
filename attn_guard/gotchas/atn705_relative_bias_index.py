"""A relative bias that rewards distance, or whose index is no function of the offset.

What it does
------------
Finds linear biases (ALiBi) that grow with the distance of a key where they should fall, or that are no function of it
at all, and tables of relative biases that are read at the wrong entry: cells of one offset read different ones,
different offsets on a grid share one, or a table made for a grid is read by the places in a row.

Why is this bad
---------------
With the wrong sign, the farthest token gets the most weight, and the more so the longer the text. An index that
mixes up
offsets ties together what has nothing to do with each other: with a row stride of 3·w - 1 in place of 2·w - 1, "two
up" is
"one down and five to the left". Training adapts as well as it can, so that nothing but a worse result shows it.

The probe reads the bias where it is added, and the index of its table where there is one. Biases of T5, whose far
offsets share entries on purpose, and indices of absolute pairs are right as they are.

It is in preview: an index may tie offsets together on purpose.

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
    code="ATN705",
    name="relative-bias-index",
    summary="the relative bias does not follow the distance of query and key",
    fix="index by j - i, shifted and strided by 2 * size - 1 per axis; a linear bias is -slope * (i - j)",
    preview=(Detector.PROBE,),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        for bias in anatomy.biases:
            wrong = bias.wrong_index
            if bias.rewards_distance:
                yield GOTCHA.at(
                    bias.op.location,
                    "the linear bias grows with the distance of a key",
                    help="add slope * (j - i) for key j and query i",
                    expected="a bias that falls with the distance",
                    found="a bias that grows with it, in every head",
                )
            elif bias.has_slopes_without_distance:
                yield GOTCHA.at(
                    bias.op.location,
                    "the linear bias is no function of the distance of a key",
                    help="add slope * (j - i) for key j and query i",
                    expected="one number for each distance",
                    found="several, multiplied by a slope in each head",
                )
            elif wrong and bias.reads is not None:
                yield GOTCHA.at(
                    bias.reads.location,
                    "the index of the relative bias is no function of the offset alone",
                    expected="one entry for each offset",
                    found=wrong,
                )
