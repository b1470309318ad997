"""A query whose every key is hidden, and whose row is NaN.

What it does
------------
Finds masks that leave a query without any key and fill with -inf: a causal mask together with padding on the left, or a
sample that is all padding.

Why is this bad
---------------
The softmax of nothing but -inf is NaN. Zeroing it in the loss does not help: in the next layer the row is a value, and
0 · NaN is NaN for every query; in the backward pass it is an input of each projection, and one such row makes the
gradient of all parameters NaN. Where the NaN is cleaned after the softmax, the gradient stays NaN if -inf was *added*
to the scores; it is finite after `masked_fill`, or where the scores are kept finite before the softmax.

Left padding is a warning, since only padded tokens are hit at first; a sample that is all padding is a remark, where
the
meaning of the mask is declared. NaN at real tokens, and a NaN gradient behind a clean output, are errors. Rows without
any key inside torch's own layers are left alone.

In source, -inf where a causal mask is joined with a padding mask is enough to be told. That half is in preview: with
padding on the right only, no row is empty.

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

from attn_guard.findings import Detector, Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN211",
    name="empty-row",
    summary="a query whose every key is hidden gives NaN",
    fix="fill once with torch.finfo(scores.dtype).min, or open such rows and zero them after the softmax",
    explained_by=("ATN1", "ATN3"),
    preview=(Detector.LINT,),
)


def lint(function: Function) -> Iterator[Finding]:
    for mask in function.open_rows:
        message = "later keys and padded keys are both filled with -inf; a row may be left without any key"
        yield GOTCHA.at(mask.location, message, severity=Severity.WARNING)


def probe(xray: XRay) -> Iterator[Finding]:
    for rows in xray.handed.empty_rows:
        yield GOTCHA.at(
            rows.location,
            f"{rows.why}; its row is NaN",
            severity=Severity.ERROR if rows.severe else Severity.INFO if rows.rare else Severity.WARNING,
            expected="finite rows, and finite gradients",
            found=rows.reach,
        )


def fix(blamed: Blamed) -> Fix | None:
    """The lowest number that there is in place of -inf. Unsafe: a row without keys then averages all of them."""
    scores, filled = blamed.argument(0, "input"), blamed.argument(2, "value")
    if blamed.called not in ("masked_fill", "masked_fill_") or scores is None or not scores.is_name or filled is None:
        return None
    return (
        unsafe(blamed.replacing(filled, f"torch.finfo({scores.text}.dtype).min")) if blamed.imports("torch") else None
    )
