"""What it does
------------
Finds attention whose weights pass no dropout before they meet the values.

Why is this bad
---------------
It is not wrong, but this team trains every attention with dropout on its weights.

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

from attn_guard.anatomy import Site, Stage, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding

GOTCHA = Gotcha(
    code="ACME101",
    name="weights-without-dropout",
    summary="weights pass no dropout",
    fix="pass the weights through nn.Dropout",
    severity=Severity.WARNING,
)


def check(site: Site) -> Iterator[Finding]:
    if site.softmax is not None and not site.find(StepKind.DROPOUT, Stage.WEIGHTS):
        yield GOTCHA.at(site.softmax)
