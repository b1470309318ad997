"""Dropout on the scores, before the softmax.

What it does
------------
Finds dropout that is applied to the scores, before the softmax, where it belongs on the weights, after it.

Why is this bad
---------------
Dropout writes zeros. Among weights a zero means "not attended to"; among scores it means "as much as any key with a
score of 0": exp(0) = 1. So nothing is dropped, weak keys gain weight, and a key that a mask blocks with -inf comes back
to life: in training the model looks at the future and at padding, though evaluation is clean. What is kept is
multiplied by 1 / (1 - p), which sharpens the softmax in training only.

Scores that are hidden by chance with -inf (DropKey) are another method, and right.

The probe runs the module once in training mode. Where the configured rate is 0, it is raised to see the place; the
finding is then a warning.

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

from attn_guard.anatomy import Stage, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN502",
    name="dropout-before-softmax",
    summary="dropout on the scores: a dropped score of 0 is an ordinary one, not an absent one",
    fix="softmax first, then dropout on the weights",
    explains=("ATN203", "ATN212", "ATN214"),
)


def lint(function: Function) -> Iterator[Finding]:
    yield from function.judged(_dropped_scores)


def _dropped_scores(site: Site) -> Iterator[Finding]:
    for dropout in site.find(StepKind.DROPOUT, Stage.SCORES)[:1]:
        related = (site.softmax, "softmax over what is left") if site.softmax else None
        yield GOTCHA.at(dropout, related=related)


def probe(xray: XRay) -> Iterator[Finding]:
    for found in xray.modes.training.dropouts:
        if found.stage is Stage.SCORES:
            yield GOTCHA.at(
                found.op.location,
                severity=Severity.WARNING if found.raised else Severity.ERROR,
                expected="dropout after the softmax",
                found="dropout before it",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Exchanges dropout and softmax, where one stands in the other. Unsafe: the rate was chosen for the scores."""
    softmax, scores = blamed.related, blamed.argument(0, "input")
    dropped = softmax.argument(0, "input") if softmax and "softmax" in softmax.called else None
    if softmax is None or dropped is None or scores is None or dropped.node is not blamed.node:
        return None
    around, _, behind = dropped.text.rpartition(scores.text)
    weights = softmax.text.replace(dropped.text, scores.bracketed if softmax.receiver else scores.text, 1)
    return unsafe(softmax.replacing(softmax.whole, f"{around}{weights}{behind}"))
