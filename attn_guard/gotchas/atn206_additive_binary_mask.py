"""A 0/1 mask that is added to the scores.

What it does
------------
Finds masks of flags, True and False or 1 and 0, that are added to the scores as if they were numbers: `scores + keep`,
a `.float()` mask handed to `F.scaled_dot_product_attention` or `nn.MultiheadAttention`.

Why is this bad
---------------
What is added to hide a key must be -inf, or close to it. Adding 1 to the keys that may be seen raises their weight by a
factor of e and hides nothing: of a padding mask that `nn.MultiheadAttention` was given as 0.0 and 1.0, more than half
of the weight was measured to stay on padding. A boolean `attn_mask` is understood, its `.float()` is taken as an
additive mask, and both have the same shape.

The probe hands over masks whose meaning is promised, and looks at what is added to the scores. The linter knows a
mask of flags by how it is made: by a comparison, by `triu` or `tril` of ones, by `1 - mask`, or by the contract of the
class.

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
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN206",
    name="additive-binary-mask",
    summary="a 0/1 mask is added to the scores; it hides nothing",
    fix="pass a boolean mask, or add 0 and -inf: scores.masked_fill(~keep, -inf)",
    explains=("ATN203", "ATN205", "ATN209", "ATN212", "ATN214", "ATN503"),
)


def lint(function: Function) -> Iterator[Finding]:
    for mask in function.added_flags:
        declared = function.declares_mask(mask.text)
        yield GOTCHA.at(mask.location, severity=Severity.ERROR if declared else Severity.WARNING)


def probe(xray: XRay) -> Iterator[Finding]:
    for op, promised in xray.handed.added_flags:
        yield GOTCHA.at(
            op.location,
            severity=Severity.ERROR if promised else Severity.WARNING,
            expected="0 and -inf, or a boolean mask",
            found="0 and 1, added",
        )


def fix(blamed: Blamed) -> Fix | None:
    """Fills where the mask is 0. Unsafe: the mask may hold other numbers."""
    if blamed.sides is None or blamed.sides[1] != "+" or not blamed.imports("torch"):
        return None
    scores, _, added = blamed.sides
    mask = blamed.at(added).receiver or added
    fill = f"torch.finfo({scores.text}.dtype).min"
    filled = f"{scores.text}.masked_fill({mask.text} == 0, {fill})"
    return unsafe(blamed.replacing(blamed.whole, filled)) if scores.is_name else None
