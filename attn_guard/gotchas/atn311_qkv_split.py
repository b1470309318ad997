"""A fused projection that is cut in another way than it is packed.

What it does
------------
Finds fused query-key-value projections that are cut in equal thirds although the module has fewer heads of keys and
values than of queries, and projections that two paths through one module cut in different orders.

Why is this bad
---------------
With 8 query heads and 2 heads of keys and values, a fused projection has (8 + 2 + 2) · head_dim columns. `chunk(3)`
gives 4 · head_dim to each: part of the queries are taken for keys, and keys for values. Where the views that follow
take what they get, nothing raises; else the error names a shape, lines below the cause. Packed as [Q|K|V], a
projection must not be read head by head as [q k v | q k v | …], and the reverse: the numbers are all there, in other
roles. Trained from scratch, either order works; with loaded weights, or when only one path does it, the result is
noise.

For the order there must be evidence, so that only two paths of one module that disagree are reported. The linter
reports `chunk(3)` of a projection whose width is written as a sum with fewer heads of keys.

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

from attn_guard.anatomy import StepKind
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN311",
    name="qkv-split",
    summary="fused projection is not cut as it is packed",
    fix="split the columns as packed: [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]",
    explains=("ATN102", "ATN209", "ATN301", "ATN302", "ATN303", "ATN304", "ATN308", "ATN309", "ATN403", "ATN503"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A fused projection whose width is a sum with fewer heads of keys, cut in equal thirds."""
    for fault in function.unequal_thirds:
        yield GOTCHA.at(fault.location, "a projection with fewer heads of keys is cut in equal thirds")


def probe(xray: XRay) -> Iterator[Finding]:
    for cut in xray.equal_thirds:
        yield GOTCHA.at(
            cut.op.location,
            f"projection for {cut.heads} query heads and {cut.key_heads} heads of keys is cut in equal thirds",
            expected=" + ".join(map(str, cut.right)),
            found=" + ".join([str(cut.third)] * 3),
        )
    for other in xray.other_cuts:
        split, usual = (site.site.find(StepKind.SPLIT) for site in (other.anatomy, other.usual))
        if split:
            yield GOTCHA.at(
                split[0],
                f"with {other.path} the fused projection is cut in another order",
                related=(usual[0], "the other cut") if usual else None,
                expected="the same columns as queries on every path",
                found="other columns",
            )
