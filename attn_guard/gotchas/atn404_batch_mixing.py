"""The output of one sample depends on another sample of the batch.

What it does
------------
Finds modules in which an output of one sample changes, in evaluation mode, when another sample does, and names the line
at which that starts. Attention that runs over the batch axis in place of time is ATN305.

Why is this bad
---------------
What a model says about one input then depends on what else happens to be in the batch: results cannot be repeated, a
batch of one behaves differently, and evaluation leaks from sample to sample. It comes from statistics over the
batch that are computed in evaluation as well (a norm written by hand), from a reshape that flattens batch and time
before attention, or from a softmax or a mean with a forgotten axis.

Attention across all samples and positions is a warning: a few designs compare the samples of a batch on purpose.

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
    code="ATN404",
    name="batch-mixing",
    summary="samples of a batch have influence on each other",
    fix="keep the batch axis apart: no statistic, softmax or attention over it",
    explains=("ATN214", "ATN212"),
    explained_by=("ATN1", "ATN3"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    mixing = xray.mixing
    if mixing is None:
        return
    yield GOTCHA.at(
        mixing.entry,
        f"the output of sample {mixing.other} depends on sample 0",
        severity=Severity.WARNING if mixing.order is not None else Severity.ERROR,
        expected="no influence between samples",
        found="attention across samples" if mixing.order is not None else "influence that starts here",
    )
