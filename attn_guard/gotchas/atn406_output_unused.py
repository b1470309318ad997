"""An attention whose result is thrown away, or whose output projection is.

What it does
------------
Finds attention that is computed and has no influence on anything that the module returns, although the stream that it
was made of goes on: `self.attn(x)` as a statement, a result that is never added back, weights that meet no value. Also
finds modules whose merged heads go on as they are, while a projection of the right form, made after those of query, key
and value, is never used (a warning).

Why is this bad
---------------
Without attention no position learns anything from another; the residual stream and the feed-forward layers still
train, and the loss still falls. Without the output projection, each head can write to its own columns only, and the
parameters that were meant for it never get a gradient.

The linter reports a call whose result no statement reads afterwards.

Attention that is computed for its weights, which are returned, is not reported, and neither is that of the last layer
over a second stream, which served the layers before.

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
    from attn_guard.probe.tape import Op
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN406",
    name="output-unused",
    summary="the result of the attention reaches nothing that is returned",
    fix="feed the result on: x = x + self.attn(x)",
    explains=("ATN202", "ATN309", "ATN402", "ATN403"),
    explained_by=("ATN106",),
)


def lint(function: Function) -> Iterator[Finding]:
    """An attention called for a result that nothing reads."""
    for place in function.unused_attention:
        yield GOTCHA.at(place, "nothing reads the result of this attention")


def probe(xray: XRay) -> Iterator[Finding]:
    for softmax in xray.without_value:
        yield GOTCHA.at(
            softmax.location,
            "the weights meet no value, and nothing that is returned depends on them",
            expected="influence on the output",
            found="none",
            help="multiply the weights with the value: context = weights @ value",
        )
    for wiring in xray.wirings:
        trace = wiring.anatomy.trace
        if wiring.output_goes_nowhere:
            if not wiring.ends_a_stream(xray.wirings):
                yield GOTCHA.at(trace.context.location, expected="influence on the output", found="none")
        elif wiring.idle_output:
            yield _unprojected(trace.merge[-1] if trace.merge else trace.context, wiring.idle_output)
    for normaliser in xray.normalisers:
        idle = xray.idle_output(normaliser)
        if idle:
            yield _unprojected(normaliser.way[-1] if normaliser.way else normaliser.trace.context, idle)


def _unprojected(op: Op, idle: str) -> Finding:
    return GOTCHA.at(
        op.location,
        f"the merged heads go on as they are; {idle} is never used",
        severity=Severity.WARNING,
        help="send the merged heads through the output projection",
        expected=f"{idle} on the way to the output",
        found="no projection",
    )
