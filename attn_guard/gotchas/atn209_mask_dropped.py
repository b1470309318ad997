"""A mask that acts on one path through a module and is lost on another.

What it does
------------
Runs a module on every path that its switches open, with the same weights, inputs and seed, and finds attention that
sees keys on one of them which are blocked on another. Switches are `need_weights` and its like, attributes that
choose an
implementation (`flash`, `use_sdpa`, `fused_attn`, `attn_impl`), checkpointing, the attention implementation of a
transformers model, training mode without dropout, and a mask that blocks nothing in place of none. Decoding with a
cache, with padding as well, is held against the full pass.

Why is this bad
---------------
Fast paths are written later than slow ones, and the mask is an argument that is easily forgotten: weights are asked for
and the code falls back to a branch that was never given the mask; `checkpoint(block, x)` for `checkpoint(block, x,
mask)`; causality that is added only `if mask is not None`. Tests run one of the paths. The other one is used for
training, for plots or on other hardware, and looks at padding or into the future.

In source, a switch between two computations in one function is followed where it is sure that one of them has no
mask: a test that asks for the mask itself, a cache or a length has its reasons. A mask that is joined to an optional
argument, if there is one, and used nowhere else, is told as well.

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
    code="ATN209",
    name="mask-dropped",
    summary="one path through the module loses the mask",
    fix="hand the same mask to every path",
    explains=("ATN212", "ATN214", "ATN503", "ATN701"),
    explained_by=("ATN1", "ATN201", "ATN202", "ATN203", "ATN205", "ATN206", "ATN207", "ATN208", "ATN221", "ATN3"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Attention on both sides of a switch of which one is surely without a mask."""
    for path in function.maskless_paths:
        yield GOTCHA.at(path.location, "the mask of the other path is lost on this one", related=path.related)
    for mask in function.masks_lost_without_caller:
        fix = "apply the mask outside of the test, whether another one is given or not"
        yield GOTCHA.at(mask.location, mask.text, severity=Severity.WARNING, help=fix)


def probe(xray: XRay) -> Iterator[Finding]:
    for divergence in xray.divergences:
        if divergence.dropped is None:
            continue
        side, site, keys = divergence.dropped
        other = divergence.other.text
        yield GOTCHA.at(
            site.trace.softmax.location,
            f"the mask is lost with {side.text}" if side.text else f"the mask is lost as called, and acts with {other}",
            expected="the same keys blocked on every path",
            found=f"{keys} cells of the scores more are open",
        )
    opened = xray.opened_with_cache
    if opened is not None:
        yield GOTCHA.at(
            opened.order.place,
            f"the mask is lost {opened.when}",
            severity=Severity.ERROR if xray.promised("cache") else Severity.WARNING,
            expected="the same keys blocked as in the full pass",
            found=f"{opened.cells} cells of the scores more are open",
        )
