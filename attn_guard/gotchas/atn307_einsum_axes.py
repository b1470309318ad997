"""An einsum that contracts or keeps the wrong axis.

What it does
------------
Finds einsums of an attention in which a letter stands in one operand alone and not in the result, or twice in one
operand, and products that sum the scores over all heads.

Why is this bad
---------------
A letter that the other operand does not have, and the result neither, is summed over by itself. In
`einsum("bhqk,bhvd->bhqd", weights, value)` the weights are summed over the keys, which gives 1, and the values over all
positions: the scores no longer matter. A group letter that is missing on the right adds up the query heads of a group
before the softmax. A letter that is named twice in one operand reads only the diagonal, such as `"ee,bte->bte"` for a
matrix of weights. Letters check no names and little of the sizes: where the result has the wanted shape, nothing
raises.

The linter reads the letters of products that are written out. It stays silent about an operand of which it knows no
axis at all: one that was put in with `unsqueeze` has one column, and nothing is lost where it is summed over. The probe
sees a sum that is followed by a product in one and the same call. It reports a size and no letter: the letters are on
the line.

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

from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.contractions import LostLetter
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN307",
    name="einsum-axes",
    summary="einsum contracts or keeps the wrong axis",
    fix="give each axis a letter of its own: bhqd,bhkd->bhqk for the scores, bhqk,bhkd->bhqd for the context",
    explains=(
        "ATN101",
        "ATN102",
        "ATN104",
        "ATN106",
        "ATN107",
        "ATN203",
        "ATN205",
        "ATN212",
        "ATN214",
        "ATN303",
        "ATN304",
        "ATN309",
        "ATN404",
        "ATN405",
        "ATN406",
    ),
)


def lint(function: Function) -> Iterator[Finding]:
    """A letter that one operand has alone, or twice."""
    for fault in function.lost_letters:
        yield GOTCHA.at(fault.location, fault.text)


def probe(xray: XRay) -> Iterator[Finding]:
    for lost in xray.lost_letters:
        yield GOTCHA.at(
            lost.op.location,
            _message(lost),
            expected="each axis of an operand in the other operand or in the result",
            found=f"an axis of size {lost.size} in one operand alone",
        )
    for anatomy in xray.sites:
        heads = anatomy.influence.heads_in_product
        if heads > 1 and anatomy.site.scores is not None:
            yield GOTCHA.at(
                anatomy.site.scores,
                "scores are summed over the heads",
                expected=f"scores of {heads} heads",
                found="one score for all heads together",
            )


def _message(lost: LostLetter) -> str:
    if lost.diagonal:
        return f"an axis of size {lost.size} is named twice; only the diagonal is read"
    whose = "the attention weights are" if lost.of_weights else "one operand is"
    return f"{whose} summed over an axis of size {lost.size} before the product"


def fix(blamed: Blamed) -> Fix | None:
    """The letter that weights have alone, given to the value: ``bhij,bihd`` sums over j only as ``bhij,bjhd``. Unsafe:
    another letter may be the wrong one."""
    lost = re.search(r"axis (\w) stands in one operand alone", blamed.finding.message)
    equation = blamed.argument(0) if blamed.called == "einsum" and lost else None
    found = re.fullmatch(r"([\"'])(\w+)(\s*,\s*)(\w+)(\s*->\s*\w+\1)", equation.text) if equation else None
    if lost is None or found is None or found[2][-1] != lost[1] or found[4].count(found[2][-2]) != 1:
        return None
    value = found[4].replace(found[2][-2], lost[1])
    return unsafe(blamed.replacing(equation, f"{found[1]}{found[2]}{found[3]}{value}{found[5]}"))
