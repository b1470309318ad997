"""Decoding with a cache gives other outputs than the full pass.

What it does
------------
Finds modules with a cache of keys and values that compute something else with it: token by token, after a prompt,
in chunks of several tokens, or with all tokens at once and the cache attached.

Why is this bad
---------------
A model is trained and evaluated by full passes and used with the cache. Where both differ, what is deployed is not what
was evaluated: the text gets worse with every token, or only in long chats, or only for prompts that come in chunks,
and no test of the training code can show it. Usual causes are positions that start again at 0 in each call, keys
that are stored before they are rotated, new tokens that are put before the old ones, entries that are overwritten or
forgotten. A mask that is lost once a cache is there is told as such (ATN209).

The probe decodes the same tokens in these ways and compares with the full pass. It works on copies, and only where
the cache is declared (`cache="past"`) or plainly recognised: `past_key_values`, `layer_past`, `kv_cache` and the
like, or buffers that a call with `start_pos`, `input_pos` or `use_cache` fills. A difference counts if it is there in
float64, too, and if the pass over the beginning of the input alone gives what the whole pass gives for it. The
finding names the first operation that computes something else.

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
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN701",
    name="cache-mismatch",
    summary="decoding with the cache gives other outputs than the whole sequence at once",
    fix="append keys and values once each, and offset positions and mask by the length of the cache",
)


def probe(xray: XRay) -> Iterator[Finding]:
    found = xray.decoded
    if found is None:
        return
    severity = Severity.ERROR if xray.promised("cache") else Severity.WARNING
    if found.error is not None:
        yield GOTCHA.at(
            found.failed_at,
            f"decoding raises {type(found.error).__name__} {found.when}",
            severity=severity,
            expected="the outputs of the full pass",
            found=str(found.error).strip().partition("\n")[0][:160],
        )
        return
    short = found.short
    cached = () if short is None else (f"the cache holds {short.held} of {short.decoded} decoded positions",)
    yield GOTCHA.at(
        found.location,
        f"decoding {found.when} differs from the full pass at {found.what}",
        severity=severity,
        expected="the output of the full pass, up to rounding",
        found=f"a difference of {found.difference:.2g} in numbers up to {found.spread:.2g}",
        notes=(*cached, f"the tokens were handed over as {found.schedule}"),
    )
