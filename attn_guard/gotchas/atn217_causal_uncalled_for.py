"""Attention that is causal although its module promises to look both ways.

What it does
------------
Finds modules declared `causal=False` in which no output depends on any later input, and modules declared `cross=True`
whose cross-attention hides the later part of the memory.

Why is this bad
---------------
Encoders, vision models, diffusion models and cross-attention need to see everything. A causal mask that slips in costs
half of the context and raises nothing: the first position sees only itself, the loss is a little worse than it should
be. It comes in by a default (`getattr(self, "is_causal", True)`), by a flag that shared code sets for decoders
(`is_causal=query_length > 1`), or by a mask that is left out on the assumption that there is none to build.

Only a declared promise is held against the module: most attention that is causal is meant to be.

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
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN217",
    name="causal-uncalled-for",
    summary="attention is causal, against the contract",
    fix="pass is_causal=False and no triangular mask",
    explains=("ATN212", "ATN216"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    if xray.promised("causal") and xray.contract.causal is False:
        yield from _self_attention(xray)
    if xray.promised("cross") and xray.contract.cross:
        yield from _cross_attention(xray)


def _self_attention(xray: XRay) -> Iterator[Finding]:
    influence = xray.streams.influence
    order = next((order for order in xray.orders if order.anatomy.site.causal), None)
    if order is None or influence is None or not influence.tril(-1).any() or influence.triu(1).any():
        return
    yield GOTCHA.at(
        order.place,
        "no output depends on a later input, although the module is declared to look both ways",
        expected="influence of later inputs",
        found="none",
        leak_map=xray.streams.map,
    )


def _cross_attention(xray: XRay) -> Iterator[Finding]:
    for order in xray.orders:
        if order.anatomy.influence.is_self is not True and order.triangular:
            yield GOTCHA.at(
                order.place,
                "cross-attention hides the later part of the memory",
                expected="every query sees the whole memory",
                found="a triangle",
                leak_map=order.map,
            )
