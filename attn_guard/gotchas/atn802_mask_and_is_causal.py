"""A mask and `is_causal=True` in one call.

What it does
------------
Finds calls of `F.scaled_dot_product_attention` that are given both `attn_mask` and `is_causal=True`.

Why is this bad
---------------
Which of the two counts depends on the kernel that torch chooses for the device, the dtype and the sizes: the plain one
refuses the call, others quietly apply both. Code that works on one machine raises on the next, or once
dropout, another dtype or a longer sequence picks another kernel.

The probe sees every call and applies both, so that the rest of the module can be looked at.

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

from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN802",
    name="mask-and-is-causal",
    summary="attn_mask and is_causal=True are passed to one call; it depends on the kernel what happens",
    fix="join both into attn_mask, and leave is_causal out",
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.masked_and_causal:
        yield GOTCHA.at(fault.location)


def probe(xray: XRay) -> Iterator[Finding]:
    for seen in (xray, *(delivery.seen for delivery in xray.handed.over)):
        for call in seen.tape.fused:
            if call.masked and call.causal:
                yield GOTCHA.at(call.location, expected="one of both", found="attn_mask and is_causal=True")
