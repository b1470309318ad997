"""A causal mask that starts at the wrong corner, because there are more keys than queries.

What it does
------------
Finds causal attention with Tq ≠ Tk whose triangle starts at the top left, although the queries are not the first of the
keys: `is_causal=True` beside a cache, or a `tril` of (Tq, Tk).

Why is this bad
---------------
`F.scaled_dot_product_attention(..., is_causal=True)` lets query i see the keys 0 … i. With a cache, query i is not
position i: a single new token sees the first key of the cache and nothing else, and a chunk of new tokens loses most of
the past and all of itself. Training, where Tq = Tk, is not affected, so the mistake shows only as poor text.

A triangle from the top left is right where the queries are the first keys, as in a cache of fixed size that is being
filled. With one new query no mask is needed. Between two different sequences (cross-attention) a triangle says that
their positions correspond, which is rarely meant; this is a warning.

In source, the cache is known by `torch.cat` with something that is named like one. A branch that only runs without a
cache may be causal, and so may `is_causal=past is None`.

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
    code="ATN216",
    name="causal-misaligned",
    summary="causal mask starts at the top left, but the queries are the last of the keys",
    fix="pass a mask aligned to the bottom right: torch.ones(Tq, Tk, dtype=torch.bool).tril(Tk - Tq)",
    explains=("ATN209", "ATN503", "ATN701"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A cache in front of the keys, and a triangle that starts at the first of them whether there is one or not."""
    for triangle in function.misaligned_triangles:
        yield GOTCHA.at(triangle.location, related=triangle.related)


def probe(xray: XRay) -> Iterator[Finding]:
    for order in xray.orders:
        if not order.misaligned:
            continue
        cross = order.distance is None
        queries, keys = order.seen.shape[-2:] if order.seen is not None else (0, 0)
        yield GOTCHA.at(
            order.place,
            f"causal mask over {queries} queries and {keys} keys of another sequence" if cross else "",
            severity=Severity.WARNING if cross else Severity.ERROR,
            help="drop is_causal: all of the other sequence may be seen" if cross else "",
            expected=f"query 0 sees {keys if cross else keys - queries + 1} keys",
            found="1",
            leak_map=order.map,
        )
    decoded = xray.decoded
    if decoded is not None and decoded.misaligned is not None:
        yield GOTCHA.at(
            decoded.misaligned.place,
            f"the causal mask starts at the top left {decoded.when}",
            severity=Severity.ERROR if xray.promised("cache") else Severity.WARNING,
            expected=f"{decoded.what} sees {decoded.start + 1} keys" if decoded.end - decoded.start == 1 else "",
            found="1",
            leak_map=decoded.misaligned.map,
        )


def fix(blamed: Blamed) -> Fix | None:
    """A triangle from the bottom right. Unsafe: a mask that is written out may turn a fused kernel off."""
    query, key = blamed.argument(0, "query"), blamed.argument(1, "key")
    if blamed.called != "scaled_dot_product_attention" or blamed.argument(3, "attn_mask"):
        return None
    if not (query and key and query.is_name and key.is_name):
        return None
    rows, columns = f"{query.text}.size(-2)", f"{key.text}.size(-2)"
    ones = f"torch.ones({rows}, {columns}, dtype=torch.bool, device={query.text}.device)"
    mask = blamed.with_argument(3, "attn_mask", f"{ones}.tril({columns} - {rows})")
    return unsafe(blamed.all(blamed.without_argument("is_causal"), mask))
