"""A softmax written out as exp and sum, without the row maximum taken off.

What it does
------------
Finds attention weights computed as `exp(scores) / exp(scores).sum(...)` where no maximum is subtracted before the
exponential and nothing else bounds the scores.

Why is this bad
---------------
exp overflows beyond 11.1 in float16 and 88.7 in float32 and bfloat16. One score above that makes its row inf / inf =
NaN, and the loss NaN from there on: in half precision within the first steps, in float32 once training has made the
scores large. Subtracting each row's maximum changes nothing in the result and makes overflow impossible; `softmax` does
it, in every dtype. A row of which every key is blocked gives 0 / 0 either way.

This one is in preview: scores may be bounded in a way that neither reader sees. Norms of query and key, a tanh and a
clamp are seen. In source, a function that speaks of a maximum or a bound anywhere is left alone, and so are
exponentials that never meet a value, such as those of a loss. A file with neither a softmax nor `torch.exp` is not
read.

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
    code="ATN108",
    name="unsafe-softmax",
    summary="softmax is written out without subtracting the row maximum; exp overflows on large scores",
    fix="torch.softmax(scores, dim=-1)",
    severity=Severity.WARNING,
    preview=(Detector.LINT, Detector.PROBE),
    explains=("ATN211",),
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.unsafe_softmaxes:
        yield GOTCHA.at(fault.location, related=fault.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        written = anatomy.trace.written
        if written.exp is not None and not written.shifted and not anatomy.bounded:
            yield GOTCHA.at(
                written.exp.location,
                expected="exp(scores - scores.amax(dim=-1, keepdim=True))",
                found=f"exp of scores that reach {anatomy.highest_score:.3g}; it overflows above 11.1 in float16",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Takes the largest score of each row off first. Unsafe: a row that is blocked whole becomes NaN."""
    scores, total = blamed.argument(0, "input"), blamed.related
    axis = total.argument(1, "dim") if total else None
    if blamed.called != "exp" or scores is None or not scores.is_name or axis is None:
        return None
    shifted = f"{scores.text} - {scores.text}.amax(dim={axis.text}, keepdim=True)"
    return unsafe(blamed.replacing(scores, f"({shifted})" if blamed.receiver else shifted))
