"""A call that changes a mask which outlives it.

What it does
------------
Finds masks of the caller, and masks that a module keeps in a buffer or an attribute, that a call writes into: with
`masked_fill_`, `logical_not_`, `&=`, or an assignment to some of their entries.

Why is this bad
---------------
The caller hands the same mask to the next layer, which now gets another one. A stored causal mask that is given the
padding of a batch keeps it for the next batch: masks add up over calls, and what the model sees depends on what it was
shown before. Indexing and `view` give the same memory another name, so that the write need not look like one.

A buffer that is filled anew before it is read, such as a table that grows with the sequence, is no mistake.

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
    code="ATN210",
    name="mask-mutated",
    summary="a call changes a mask that outlives it",
    fix="use the form that returns a new tensor: masked_fill, ~mask, mask & other; or clone the mask first",
)


def probe(xray: XRay) -> Iterator[Finding]:
    for mutation in xray.handed.mutations:
        whose = "the caller's" if mutation.of_caller else "the stored"
        yield GOTCHA.at(
            mutation.op.location,
            f"a call changes {whose} {mutation.name} in place",
            expected="the same mask after the call as before",
            found="another one",
        )
