"""Returned attention weights that carry dropout in training.

What it does
------------
Finds modules that return their weights after dropout: in training mode, some are 0 by chance, the others are too large,
and rows do not sum to one.

Why is this bad
---------------
The map is another one at each call. A loss on the weights (coverage, alignment, sparsity) is computed on noise, and a
plot made during training shows keys as ignored that are not. In evaluation mode nothing is wrong, so tests pass.

`nn.MultiheadAttention` returns its weights after dropout, and so do the attention layers of several libraries. Where
the dropout is theirs, this is a remark.

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
    code="ATN602",
    name="weights-after-dropout",
    summary="the returned weights carry dropout in training mode",
    fix="return the weights as the softmax gave them, and use dropout(weights) for the product with the value",
    severity=Severity.WARNING,
)


def lint(function: Function) -> Iterator[Finding]:
    """A helper that returns them may be the business of its caller; a `forward` returns them to whoever asks."""
    if function.name == "forward":
        for dropout in function.dropped_maps:
            yield GOTCHA.at(dropout)


def probe(xray: XRay) -> Iterator[Finding]:
    if xray.is_built_in or not xray.showing.returned:
        return
    for found in xray.showing.modes.training.dropped_maps:
        sums = found.map.sum(dim=-1)
        yield GOTCHA.at(
            found.op.location,
            severity=Severity.WARNING if found.by_hand else Severity.INFO,
            expected="rows that sum to 1",
            found=f"rows that sum to {float(sums.min()):.2f} … {float(sums.max()):.2f}",
        )


def fix(blamed: Blamed) -> Fix | None:
    """Keeps what is dropped for the product with the value. Unsafe: who reads the weights gets other numbers."""
    weights = blamed.argument(0, "input")
    same = weights is not None and weights.text == blamed.target
    return unsafe(blamed.kept_apart(f"dropped_{blamed.target}")) if same else None
