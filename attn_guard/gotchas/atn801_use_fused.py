"""Attention written step by step that one fused call computes.

What it does
------------
Looks for hand-written attention (product, scale, mask, softmax, product) that `F.scaled_dot_product_attention` computes
in one call. It gives the call to write, the largest difference between the two on the recorded numbers, and how many
times as fast the fused one is on this device, forward and backward, at 128 positions.

In source, it gives the call alone, and only for steps that it can follow one by one: a product of two names, a scale of
1/√head_dim on the scores, one `masked_fill` at most, the softmax over the keys, and dropout by a layer of the module.

It is advice on code that is right, so it is a remark and runs on request only: `--select ATN801`, or
`check(module, select=["ATN801"])`.

Why is this bad
---------------
Step by step, the scores and the weights of all heads are written to memory and read again, and kept for the backward
pass: their size grows with the square of the length. The fused kernels never store them. On a GPU, at usual lengths,
that is several times as fast, and the memory grows with the length only.

Writing it out is the better choice where the weights are needed: nothing is said where they are returned. Nor is
anything said where a bias is added, where scores are capped, or where weights are changed before they meet the values.

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
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN801",
    name="use-fused",
    summary="one fused call computes the same",
    fix="call F.scaled_dot_product_attention(query, key, value)",
    severity=Severity.INFO,
    on_request=True,
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.fused_calls:
        yield GOTCHA.at(fault.location, help=f"call {fault.help}", related=fault.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for call in xray.fused_calls:
        measured = call.comparison
        yield GOTCHA.at(
            call.anatomy.trace.scores.location,
            help=f"call {call.text}: scale, mask and softmax included",
            found=f"largest difference {call.difference:.1g}; {measured.speed:.2g} times as fast {measured.place}",
            related=(call.anatomy.trace.context.location, "up to here"),
        )
