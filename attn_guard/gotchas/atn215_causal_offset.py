"""A causal mask that is off by one.

What it does
------------
Finds causal attention in which every query sees one key of the future, or in which no query sees its own key.

Why is this bad
---------------
`triu` and `tril` include the diagonal, and both take one that is shifted. What to hide is `triu(1)`; `triu()` hides
the own position as well. What to keep is `tril()`; `tril(1)` keeps the next position, too. A language model that sees
one step ahead sees the very token it has to predict: its loss falls to nothing, and what it generates is useless. A
query that does not see its own key loses what it knows best, and the first one is left with no key at all: its row is
NaN, zero or the mean over everything, depending on the fill.

The probe reads the offset off the weights. It stays silent where the first query keeps itself or a sink, and where rows
without keys are cleaned up after the softmax: then the own position is left out on purpose. The linter reads it off
`triu`, `tril` and comparisons of positions, with as many queries as keys.

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

from attn_guard.anatomy import StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN215",
    name="causal-offset",
    summary="causal mask is off by one",
    fix="hide with triu(diagonal=1), or keep with tril()",
    explains=("ATN209", "ATN211", "ATN212", "ATN214", "ATN218", "ATN701"),
)


def lint(function: Function) -> Iterator[Finding]:
    severity = Severity.ERROR if function.promises.get("causal") is True else Severity.WARNING
    for triangle in function.wide_triangles:
        message = "every query sees one key after its own"
        yield GOTCHA.at(triangle.location, message, severity=severity, related=triangle.related)
    for triangle in function.narrow_triangles:
        message = "no query sees its own key, and the first one sees none"
        yield GOTCHA.at(triangle.location, message, severity=severity, related=triangle.related)


def probe(xray: XRay) -> Iterator[Finding]:
    if xray.contract.causal is not True:
        return
    severity = Severity.ERROR if xray.promised("causal") else Severity.WARNING
    for order in xray.orders:
        if order.offset == 1:
            yield GOTCHA.at(
                order.place,
                "every query sees one key after its own",
                severity=severity,
                expected="keys up to the query's own",
                found="one more",
                leak_map=order.map,
            )
        elif order.offset == -1 and not order.anatomy.site.after_softmax(StepKind.MASK):
            yield GOTCHA.at(
                order.place,
                "no query sees its own key, and the first one sees none",
                severity=severity,
                expected="keys up to the query's own",
                found="one less",
                leak_map=order.map,
            )


def fix(blamed: Blamed) -> Fix | None:
    """The diagonal of the triangle itself: 0 keeps the past with ``tril``, 1 hides the future with ``triu``."""
    diagonals = {"tril": "0", "tril_": "0", "triu": "1", "triu_": "1"}
    diagonal = diagonals.get(blamed.called)
    return blamed.with_argument(1, "diagonal", diagonal) if diagonal else None
