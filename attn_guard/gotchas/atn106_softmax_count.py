"""The scores pass the softmax twice, or not at all.

What it does
------------
Finds weights that go through a second softmax before they meet the value, and scores that meet the value without any,
where the rest says that one was meant: they are scaled by 1/√head_dim, masked with -inf, or their softmax is computed
and left unused.

Why is this bad
---------------
Weights lie between 0 and 1, so a second softmax makes them almost equal: the largest is at most e times the smallest,
whatever the scores. Blocked keys come in with 0 and leave with as much as any other, so that a second softmax undoes
every mask: padding has weight, and the future leaks. It comes in when a helper that gives weights is taken for one that
gives scores.

Without a softmax, the context is a sum that grows with the length, negative weights included, and a blocked key
contributes minus infinity.

It stays silent for attention that has something in the place of the softmax: linear attention, a feature map on query
and key, weights by a sigmoid or ReLU, decay (RetNet), a norm of the context.

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
    from attn_guard.probe.bare import Bare
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN106",
    name="softmax-count",
    summary="a second softmax over the weights makes them almost equal and undoes every mask",
    fix="apply the softmax once, to the scores",
    explains=("ATN201", "ATN202", "ATN203", "ATN212", "ATN214"),
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.second_softmaxes:
        yield GOTCHA.at(fault.location, related=fault.related)
    for fault in function.unused_softmaxes:
        yield GOTCHA.at(fault.location, "softmax is left unused", help="weights = softmax(scores, dim=-1)")
    for fault in function.bare_contexts:
        yield GOTCHA.at(
            fault.location,
            "masked scores meet the value without a softmax",
            help="weights = softmax(scores, dim=-1), and weights @ value",
            related=fault.related,
        )


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        if anatomy.trace.same_softmax_again is not None:
            yield GOTCHA.at(
                anatomy.trace.same_softmax_again.location,
                expected="1 softmax",
                found="2",
                related=(anatomy.trace.softmax.location, "the first softmax"),
            )
    for bare in xray.bare:
        if bare.wants_softmax:
            yield _missing(bare)


def _missing(bare: Bare) -> Finding:
    context = bare.trace.context.location
    unused = bare.unused
    return GOTCHA.at(
        context if unused is None else unused.location,
        "scores meet the value without a softmax"
        if unused is None
        else "softmax is left unused; the scores meet the value",
        severity=Severity.ERROR,
        help="weights = softmax(scores, dim=-1), and weights @ value",
        expected="1 softmax",
        found="none",
        related=None if unused is None else (context, "the scores meet the value here"),
        notes=(bare.wants_softmax,),
    )


def fix(blamed: Blamed) -> Fix | None:
    """Leaves the second softmax out, or puts the missing one in. Unsafe: another tensor may be meant."""
    scores = blamed.argument(0, "input")
    if "softmax" in blamed.called and scores:
        if blamed.finding.related:
            return unsafe(blamed.replacing(blamed.whole, scores.text)) if scores.text != blamed.target else None
        return unsafe(blamed.assigned_to(scores.text)) if scores.is_name else None
    scores, _ = blamed.product or (None, None)
    return unsafe(blamed.replacing(scores, f"{scores.bracketed}.softmax(dim=-1)")) if scores else None
