"""Documents that are packed into one row see each other.

What it does
------------
Calls a module with two documents in each row, by the argument that its contract names (`segments`), and finds
outputs of one document that change with the other.

Why is this bad
---------------
Packing fills rows with several short documents to save padding. Unless the attention is told where one ends, a token
attends to whatever came before in the row. Training goes on without an error and a little worse; in fine-tuning,
answers pick up what belongs to other conversations. The ids are there, and some path does not hand them on, or relies
on the positions that start again to keep documents apart.

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
    code="ATN219",
    name="packing-leak",
    summary="documents packed into one row see each other",
    fix="keep only keys of the query's own document: ids[:, None, :, None] == ids[:, None, None, :]",
    explained_by=("ATN3",),
)


def probe(xray: XRay) -> Iterator[Finding]:
    packed = xray.packed
    if packed is not None and packed.leaks:
        yield GOTCHA.at(
            packed.place,
            expected=f"no influence between documents of different {xray.contract.segments}",
            found="influence",
            leak_map=packed.map,
        )
